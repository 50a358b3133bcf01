# CC0
# Adds as floating-point numbers, which cannot hold all the integers.
import sys

print(int(sum(map(float, sys.stdin.read().split()))))
