// CC0
// Writes to address 0.
int main() {
    volatile int *volatile nowhere = nullptr;
    *nowhere = 1;
}
