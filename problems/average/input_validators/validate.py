# CC0
import re
import sys

number = r"(?:0|-?[1-9][0-9]{0,9})"
text = sys.stdin.buffer.read().decode("ascii")
match = re.fullmatch(rf"([1-9][0-9]*)\n({number}(?: {number})*)\n", text)
if not match:
    sys.exit(43)
values = list(map(int, match.group(2).split(" ")))
if len(values) != int(match.group(1)) or len(values) > 1000 or max(map(abs, values)) > 10**9:
    sys.exit(43)
sys.exit(42)
