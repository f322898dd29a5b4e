package own

import (
	"millrace/internal/arrowipc"
	"millrace/internal/operator"
)

// ArrowColumn implements operator.Columnar.
func (o *Operator) ArrowColumn() arrowipc.Column { return operator.DeclaredColumn(o.bound) }
