"""Certificates: is a calibrated model right for every source of every length?"""
