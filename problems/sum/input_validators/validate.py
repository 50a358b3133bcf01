# CC0
import re
import sys

text = sys.stdin.buffer.read().decode("ascii")
match = re.fullmatch(r"[ \t\n]*(0|-?[1-9][0-9]*)[ \t\n]+(0|-?[1-9][0-9]*)[ \t\n]*\n", text)
if not match or any(abs(int(x)) > 10**18 for x in match.groups()):
    sys.exit(43)
sys.exit(42)
