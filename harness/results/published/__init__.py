"""What is published: the plan of it, and whether a file was measured with the code that is here.

Both the half that measures and reports/ read this; nothing here starts anything or imports an implementation.
"""
