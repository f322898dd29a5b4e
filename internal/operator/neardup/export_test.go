package neardup

// Components is for tests that import package operator.
var Components = components

// CuratorGroups is for tests that import package operator.
func CuratorGroups(signatures [][]uint32, bands, rows int) []int {
	return curator(signatures, bands, rows).roots()
}

// CompareEdges is for tests that import package operator.
var CompareEdges = compareEdges
