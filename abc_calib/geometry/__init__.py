"""Where every token stands, and which key a line names."""

from abc_calib.geometry.bias import LineBias
from abc_calib.geometry.layout import Coordinate, Layout, Part
from abc_calib.geometry.lines import ALONE, CORNER, DIRECTIONS, SITES, Heads, Line, Site
