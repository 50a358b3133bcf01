// CC0
// Prints without end.
#include <cstdio>
#include <cstring>

int main() {
    static char block[1 << 16];
    std::memset(block, '7', sizeof block);
    for (;;) std::fwrite(block, 1, sizeof block, stdout);
}
