"""Tasks and schemes of a user's own: from a file, an installed package, or a class in Python.

A file is executed only where the user names it (``--plugin``, ``load_plugin``), a package only
where the name of its entry point is asked for (group ``abc_calib.tasks`` or ``abc_calib.schemes``).
Runs record where their classes are from; opening one elsewhere names the file to pass.
"""

from abc_calib.plugins.files import PLUGINS, blamed, described, load_content, load_plugin
from abc_calib.plugins.origins import (
    check_model,
    check_origins,
    in_one_line,
    make_task,
    of_model,
    origin,
    origins,
)
from abc_calib.plugins.registry import KINDS, Kind, by_name, find, options_by_name
