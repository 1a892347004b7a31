"""Small questions about nodes of a syntax tree."""

import ast


def dotted(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return dotted(node.value) + "." + node.attr
    return "?"


def is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_none(node):
    return isinstance(node, ast.Constant) and node.value is None
