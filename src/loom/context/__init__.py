"""From a path to a prompt. Pure and deterministic: the same inputs always give the same prompt.

prepare    the three steps in order, and what comes out of them
policy     what the user wants kept: ageing, budgets, overrides, the stored watermark
age        less for the old
adapt      what this model cannot take becomes what it can
trim       to fit four budgets
assemble   pairs, ids, hoisting: blocks in the order and places that a platform allows
cost       tokens by the published formulas
limits     the recipe that fits a medium to a platform
"""
