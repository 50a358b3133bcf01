# CC0
# Right, but first fills 1 GiB.
import sys

blocks = [bytearray(b"\x01") * (1 << 20) for _ in range(1024)]
a, b = map(int, sys.stdin.read().split())
print(a + b)
