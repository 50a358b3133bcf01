# CC0
# Ends by an exception that nothing catches.
raise ValueError("no sum today")
