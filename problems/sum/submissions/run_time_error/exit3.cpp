// CC0
// Prints the right answer, but says that it failed.
#include <iostream>

int main() {
    long long a, b;
    std::cin >> a >> b;
    std::cout << a + b << '\n';
    return 3;
}
