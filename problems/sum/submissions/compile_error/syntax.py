# CC0
# Cannot be compiled to byte code.
def main(:
    print("sum"
