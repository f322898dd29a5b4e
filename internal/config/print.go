package config

import (
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes a table of every variable: its current value, the source of that value ("set" in the environment, or "default"), its
// default and its meaning. It masks secrets and does not read files.
func (c *Config) Print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	lines := [][]string{{"VARIABLE", "VALUE", "FROM", "DEFAULT", "MEANING"}}
	for _, v := range c.Variables() {
		from := "default"
		if v.Set {
			from = "set"
		}
		lines = append(lines, []string{v.Name, orDash(v.Value), from, orDash(v.Default), v.Meaning})
	}
	for _, line := range lines {
		if _, err := io.WriteString(table, strings.Join(line, "\t")+"\n"); err != nil {
			return err
		}
	}
	return table.Flush()
}

// orDash returns "-" for an empty cell, and replaces control characters in others.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' { // a tab or a line feed would break the table
			return ' '
		}
		return r
	}, s)
}
