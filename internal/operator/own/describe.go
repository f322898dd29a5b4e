package own

import "millrace/internal/operator/compiled"

// Description returns what the operator says about itself, or nil if it isn't compiled.
func (s *Source) Description() *compiled.Description { return s.description }

// Path returns the path of the operator's file.
func (s *Source) Path() string { return s.path }
