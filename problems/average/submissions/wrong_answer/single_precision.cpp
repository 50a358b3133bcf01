// CC0
// Adds in single precision, which loses the small values beside the large.
#include <cstdio>

int main() {
    int n;
    if (std::scanf("%d", &n) != 1) return 1;
    volatile float sum = 0;
    for (int i = 0; i < n; i++) {
        float x;
        if (std::scanf("%f", &x) != 1) return 1;
        sum = sum + x;
    }
    std::printf("%.10f\n", sum / n);
}
