"""Questions whose answers are not known, but whose order is: more work, a larger slice, a better board.

`networks` gives the graphs, `boards` the devices and their order, `questions` what can be asked and how it is answered,
`relations` the table of promises with their tolerances, `scenes` the questions that each promise is tried on, `doors`
those that go through every door, `judge` what breaks a promise. `whole` is the command; `test_metamorphic` tries a part
of the same questions.
"""
