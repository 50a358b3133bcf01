/* CC0 */
/* Uses a name that was never declared. */
int main(void) {
    return a + b;
}
