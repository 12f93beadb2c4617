"""From a path to a prompt. Pure and deterministic: the same inputs always give the same prompt.

prepare    the three steps in order, and what comes out of them
policy     what the user wants kept: ageing, budgets, overrides, the stored watermark
age        less for the old
survey     every block in its place, and what it would cost
measure    what one block becomes, and what that takes
adapt      what this model cannot take becomes what it can (words: texts, calls, thinking)
trim       to fit four budgets
assemble   pairs, ids, hoisting: blocks in the order and places that a platform allows
receipt    what became of every block, and why
cost       tokens by the published formulas
limits     the recipe that fits a medium to a platform
"""
