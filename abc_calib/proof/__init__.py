"""Certificates: is a calibrated model right for every source of every length?

``field`` follows the lines of the heads down to what one row can see (named in ``places``);
``windows`` lists everything that it can see there; ``network`` runs the model on that, and
``prove`` compares with the rule. ``decide`` makes of it a ``certificate`` with its ``page``, and
of failing windows whole ``sources``. ``verify`` looks again by another path, ``repair`` trains on
what fails, and ``pipeline`` does it all from nothing.
"""
