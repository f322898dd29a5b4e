module millrace/examples/operators/compare

go 1.26.0

require (
	github.com/petar-dambovaliev/aho-corasick v0.0.0-20250424160509-463d218d4745
	github.com/zeebo/blake3 v0.2.4
	millrace v0.0.0
)

require (
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace millrace => ../../..
