"""``graphcaps bench``: how fast routing and training are here, beside other formulations and the machine's ceilings.

Reading order: ``baselines`` (what it is compared with), ``inputs`` (what is routed), ``gate`` (who may be timed),
``clock`` (how), ``works``, ``train`` and ``memory`` (what is measured), ``targets`` (what must be reached), ``run``.
"""
