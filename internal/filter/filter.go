// Package filter decides which records of a message go into its result. A filter is an expression in CEL, the Common Expression
// Language (https://cel.dev), over the results of the operators, the size of the record, and the kept fields.
//
// New compiles an expression and checks its types against the declarations of the operators. The worker's results package then evaluates
// the Filter for each record. Start reading with Filter, then variables.go and member.go. docs/text.md is the manual for users, and
// docs/adr/0053-filters.md has the reasons.
package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"millrace/internal/operator"
)

// costLimit is the maximum cost of one condition for one record, in CEL's units. It bounds the time of the condition. A unit is about one
// operation on a number.
const costLimit = 100_000

// maxExpression is the maximum length of an expression in bytes.
const maxExpression = 64 << 10

// Filter is a compiled expression. It is immutable and safe for concurrent use.
//
// A filter is a conjunction of conditions. If the expression isn't of the form a && b, it is a single condition.
type Filter struct {
	variables  *variables
	conditions []condition
	missing    []string
}

// condition is a part of a Filter.
type condition struct {
	name      string // displayed name: the condition's text, or the name of a filter in a preset
	program   cel.Program
	limited   bool // whether the cost is counted
	operators []string
	stage     Stage
}

// Stage is the time at which a condition is evaluated.
type Stage uint8

// These constants are the stages, in order.
const (
	Stateless Stage = iota // before stateful operators decide on the record: no condition depends on one
	Stateful               // after stateful operators decide on the record: each condition depends on one
)

// Row is a record with its results. The function Kept returns the JSON text of the kept field with an index, or nil if the record
// doesn't have the field. Only one goroutine may use a Row.
type Row struct {
	Number      int      // index of the record in its message
	Bytes       int      // length of the text that operators processed
	SourceBytes int      // length of the whole record, for example of the JSON object that has the text as a field
	Values      [][]byte // value of each operator; see operator.Value
	Kept        func(field int) []byte

	variables *variables                  // variables of the filter that evaluated the row last
	frame     *interpreter.ExecutionFrame // frame in which CEL evaluates that filter's conditions for the row
	fields    ref.Val                     // value of the variable fields, or nil if no condition has used it yet
}

// New compiles an expression for the results of ops and for kept fields with the given names. The expression may be a preset, such as
// "preset:curator-english". The error contains the position of each mistake in the expression, and lists what is permitted there.
func New(expression string, ops []operator.Operator, kept []string) (*Filter, error) {
	f := &Filter{variables: newVariables(ops, kept)}
	env, err := f.variables.environment()
	if err != nil {
		return nil, err
	}
	var parts []part
	if name, ok := strings.CutPrefix(expression, presetPrefix); !ok {
		parts, err = f.parse(env, expression)
	} else if parts, f.missing, err = preset(name, f.variables.hasNGrams()); err == nil && !f.variables.has(qualityName) {
		err = fmt.Errorf("a preset needs the counters of the operator %s: add it to MILLRACE_OPERATORS", qualityName)
	}
	if err != nil {
		return nil, f.variables.advise(err)
	}
	for _, p := range parts {
		c, err := f.newCondition(env, p)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(ops, func(op operator.Operator) bool { return isStateful(op) && slices.Contains(c.operators, op.Name()) }) {
			c.stage = Stateful
		}
		f.conditions = append(f.conditions, c)
	}
	return f, nil
}

// parse checks an expression and returns its conditions.
func (f *Filter) parse(env *cel.Env, expression string) (parts []part, err error) {
	whole, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, compileError(issues)
	}
	if !whole.OutputType().IsExactType(types.BoolType) {
		return nil, fmt.Errorf("the expression has the type %s: write a condition, which is true or false, such as %s > 0", whole.OutputType(), recordName+".bytes")
	}
	tree := whole.NativeRep()
	if err := f.variables.checkFields(tree); err != nil {
		return nil, err
	}
	for _, e := range conjuncts(tree.Expr()) {
		text, err := cel.ExprToString(e, tree.SourceInfo())
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{text, text})
	}
	return parts, nil
}

// Names returns a readable list of a filter's variables.
func Names(ops []operator.Operator, kept []string) string {
	names := []string{recordName}
	for _, op := range ops {
		names = append(names, op.Name())
	}
	for _, name := range kept {
		names = append(names, fieldsName+"."+name)
	}
	return strings.Join(names, ", ")
}

// compileError returns the issues of an expression as one error, with the position of each.
func compileError(issues *cel.Issues) error {
	var all []string
	for _, e := range issues.Errors() {
		all = append(all, fmt.Sprintf("line %d, column %d: %s", e.Location.Line(), max(e.Location.Column(), 0)+1, e.Message))
	}
	if len(all) == 0 {
		return issues.Err()
	}
	return errors.New(strings.Join(all, "; "))
}

// conjuncts returns the operands of a conjunction, in order.
func conjuncts(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return []ast.Expr{e}
	}
	var all []ast.Expr
	for _, operand := range e.AsCall().Args() {
		all = append(all, conjuncts(operand)...)
	}
	return all
}

// newCondition compiles a part of an expression that is already checked. The cost is counted for each record only if the compiler
// can't prove that it stays within the limit.
func (f *Filter) newCondition(env *cel.Env, p part) (condition, error) {
	checked, issues := env.Compile(p.text)
	if issues.Err() != nil {
		return condition{}, compileError(issues)
	}
	estimate, err := env.EstimateCost(checked, noEstimator{})
	if err != nil {
		return condition{}, err
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	limited := estimate.Max > costLimit
	if limited {
		options = append(options, cel.CostLimit(costLimit))
	} else {
		options = append(options, f.variables.directMembers(checked.NativeRep()))
	}
	program, err := env.Program(checked, options...)
	if err != nil {
		return condition{}, fmt.Errorf("%s: %w", p.name, err)
	}
	return condition{name: p.name, program: program, limited: limited, operators: variablesOf(checked.NativeRep())}, nil
}

// Conditions returns the name of each condition, in the order in which they are evaluated. The name is the text of the condition, or in a
// preset the name of a filter.
func (f *Filter) Conditions() []string {
	names := make([]string, len(f.conditions))
	for i, c := range f.conditions {
		names[i] = c.name
	}
	return names
}

// Missing returns the filters of the preset that New omitted, each with the reason.
func (f *Filter) Missing() []string { return f.missing }

// Len returns the number of conditions.
func (f *Filter) Len() int { return len(f.conditions) }

// Has reports whether a condition of the filter belongs to stage s.
func (f *Filter) Has(s Stage) bool {
	return slices.ContainsFunc(f.conditions, func(c condition) bool { return c.stage == s })
}

// Needs reports whether a condition of stage s depends on the result of the operator called name.
func (f *Filter) Needs(s Stage, name string) bool {
	return slices.ContainsFunc(f.conditions, func(c condition) bool { return c.stage == s && slices.Contains(c.operators, name) })
}

// Uses returns whether the condition with the given index depends on the result of the operator called name.
func (f *Filter) Uses(condition int, name string) bool {
	return slices.Contains(f.conditions[condition].operators, name)
}

// Keep reports whether all conditions of a stage are true for a record. Otherwise failed is the index of the first condition that is
// false. As in CEL, a condition that can't be evaluated doesn't matter if another condition of the stage is false. If no condition is
// false, Keep returns the error of that condition. In the stage Stateless, a Row needs no values of stateful operators.
func (f *Filter) Keep(s Stage, r *Row) (keep bool, failed int, err error) {
	if r.variables != f.variables {
		frame, err := interpreter.NewExecutionFrame((*activation)(r))
		if err != nil {
			return false, -1, err
		}
		r.variables, r.frame = f.variables, frame
	}
	r.fields = nil
	for i := range f.conditions {
		c := &f.conditions[i]
		if c.stage != s {
			continue
		}
		var vars any = r.frame
		if c.limited {
			vars = (*activation)(r) // another frame, because a frame keeps the counter of the last evaluation
		}
		value, _, fault := c.program.Eval(vars)
		passes, ok := value.(types.Bool)
		switch {
		case ok && !bool(passes):
			return false, i, nil
		case ok:
		case err == nil && fault == nil:
			err = fmt.Errorf("%s: the value isn't a boolean", c.name)
		case err == nil:
			err = fmt.Errorf("%s: %s", c.name, oneLine(fault.Error()))
		}
	}
	return err == nil, -1, err
}

// oneLine returns text in one line, because the text becomes the value of a header.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
