package filter

import (
	"bytes"
	"encoding/json"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// activation provides the values of the variables for one record.
type activation Row

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	for i := range a.variables.operators {
		if r := &a.variables.operators[i]; r.name == name {
			if r.bare != nil {
				return r.bare(a.Values[i]), true
			}
			return &a.Values[i], true
		}
	}
	switch name {
	case recordName:
		return (*Row)(a), true
	case fieldsName:
		if a.fields == nil {
			a.fields = a.keptFields()
		}
		return a.fields, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (*activation) Parent() cel.Activation { return nil }

// keptFields returns the kept fields that the record has and the expression may use.
func (a *activation) keptFields() ref.Val {
	v := a.variables
	all := make(map[string]any, len(v.kept))
	for i, name := range v.kept {
		if v.used != nil && !v.used[name] {
			continue
		}
		if text := a.Kept(i); text != nil {
			all[name] = valueOf(text)
		}
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, all)
}

// valueOf returns the value of a JSON text. An integer is an int if it is in the range of int, and other numbers are doubles. Most
// fields are short strings and numbers, for which a decoder takes ten times as long.
func valueOf(text []byte) any {
	switch last := len(text) - 1; {
	case text[0] == '"' && bytes.IndexByte(text, '\\') < 0:
		return string(text[1:last])
	case text[0] == '-' || text[0] >= '0' && text[0] <= '9':
		return withNumbers(json.Number(text))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return types.NewErr("%v", err) // package frame has already validated the record
	}
	return withNumbers(value)
}

// withNumbers replaces the numbers in a decoded JSON value.
func withNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return types.NewErr("the number %s is too large", v)
		}
		return f
	case []any:
		for i := range v {
			v[i] = withNumbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = withNumbers(v[key])
		}
	}
	return value
}

// noEstimator implements cost.Estimator. It estimates no sizes.
type noEstimator struct{}

func (noEstimator) EstimateSize(cost.AstNode) *cost.SizeEstimate { return nil }

func (noEstimator) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}
