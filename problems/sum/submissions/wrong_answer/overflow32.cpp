// CC0
// Adds in 32 bits.
#include <cstdint>
#include <iostream>

int main() {
    long long a, b;
    std::cin >> a >> b;
    std::cout << int32_t(uint32_t(a) + uint32_t(b)) << '\n';
}
