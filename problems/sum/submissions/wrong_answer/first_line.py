# CC0
# Expects both numbers on the first line.
line = input().split()
print(sum(map(int, line)))
