# CC0
# Drops the fraction.
n = int(input())
print(sum(map(int, input().split())) // n)
