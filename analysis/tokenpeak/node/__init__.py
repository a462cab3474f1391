"""The node script: one script that borrows a machine from production and always gives it back.

It needs Python 3.8 or newer and nothing beyond the standard library.
`bundle.write_bundle` packs this package into one zipapp; nothing of the rest of TokenPeak is needed on a node.
"""
