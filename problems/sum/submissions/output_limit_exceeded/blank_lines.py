# CC0
# Prints line ends without end.
import sys

while True:
    sys.stdout.write("\n" * 65536)
