"""Questions whose answers are not known, but whose order is: more work, a larger slice, a better board.

`networks` gives the graphs, `questions` what can be asked and how it is answered, `relations` the table of promises with
their tolerances, `scenes` and `serving` the questions that each promise is tried on, `judge` what breaks one. `whole`
is the command; `test_metamorphic` tries a part of the same questions.
"""
