"""From a path to a prompt. Pure and deterministic: the same inputs always give the same prompt.

request      the input of the next request, and `next_request`, which compiles it
settle       renders what the prompt lacks, and prepares it again
prepare      the four steps in order (age, adapt, trim, assemble), and their result
policy       the inputs: aging, budgets, overrides, the stored watermark, known facts
age          reduces the media of old turns
layout       every block with its position and its cost as each rendition
measure      the content and the cost of one block as one rendition
adapt        converts media to forms that the model supports; `text_blocks`: text, calls, thinking
trim         fits the request into four budgets; `overflow`: the notice about it
assemble     puts blocks into the order and the places that a platform allows; `forms`: messages sent unchanged
receipt      what happened to every block, and why
cost         token estimates by the published formulas
limits       the recipe that fits a medium to a platform
renditions   renders and caches derived bytes
descriptions image descriptions by a model that the user chose
"""
