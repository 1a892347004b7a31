"""Seconds, memory and options of scripts that only run models forward. Pure.

`unit` says what one unit of a phase computes, `gpu` and `cpu` how long that takes, `engines` what another runtime would
take, `memory` what fits, `options` which batch pays.
"""
