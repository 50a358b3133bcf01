// CC0
// Right, but adds in steps of one.
#include <iostream>

int main() {
    long long a, b;
    std::cin >> a >> b;
    volatile long long sum = a;
    const int step = b < 0 ? -1 : 1;
    for (long long i = 0; i != b; i += step) sum = sum + step;
    std::cout << sum << '\n';
}
