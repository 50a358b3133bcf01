// CC0
// Prints too few digits.
#include <cstdio>

int main() {
    int n;
    if (std::scanf("%d", &n) != 1) return 1;
    long long sum = 0;
    for (int i = 0; i < n; i++) {
        long long x;
        if (std::scanf("%lld", &x) != 1) return 1;
        sum += x;
    }
    std::printf("%.2f\n", double(sum) / n);
}
