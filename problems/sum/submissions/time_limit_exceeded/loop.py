# CC0
# Never ends.
while True:
    pass
