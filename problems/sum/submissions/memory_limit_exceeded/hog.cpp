// CC0
// Right, but first fills 1 GiB.
#include <cstring>
#include <iostream>
#include <memory>
#include <vector>

int main() {
    const std::size_t block = 1 << 20;
    std::vector<std::unique_ptr<char[]>> blocks;
    for (int i = 0; i < 1024; i++) {
        blocks.emplace_back(new char[block]);
        std::memset(blocks.back().get(), i | 1, block);
    }
    long long a, b;
    std::cin >> a >> b;
    std::cout << a + b + (blocks[1023][7] == 0) << '\n';
}
