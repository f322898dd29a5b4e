package filter

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// member is a step of a program that reads a member of a variable. Its InterpretableV2 is CEL's own step, which takes longer because it
// supports any attribute.
type member struct {
	interpreter.InterpretableV2
	variable string
	get      func(object any) (any, error)
}

// Exec implements interpreter.InterpretableV2. It uses CEL's step for errors, and for names in a comprehension, which may shadow a
// variable.
func (m *member) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if a, ok := frame.Scope().(*activation); ok {
		object, _ := a.ResolveName(m.variable)
		if value, err := m.get(object); err == nil {
			if v, ok := value.(ref.Val); ok {
				return v
			}
		}
	}
	return m.InterpretableV2.Exec(frame)
}

// Eval implements interpreter.Interpretable.
func (m *member) Eval(a cel.Activation) ref.Val { return interpreter.EvalActivation(a, m.Exec) }

// directMembers returns an option that replaces the reads of members in the expression a by member steps. Use it only for programs that
// don't count their cost.
func (v *variables) directMembers(a *ast.AST) cel.ProgramOption {
	direct := map[int64]member{}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(a), ast.KindMatcher(ast.SelectKind)) {
		s := e.AsSelect()
		if s.IsTestOnly() || s.Operand().Kind() != ast.IdentKind {
			continue
		}
		if f, ok := v.members[a.GetType(s.Operand().ID()).TypeName()][s.FieldName()]; ok && !f.Type.HasTrait(traits.IndexerType) {
			direct[e.ID()] = member{variable: s.Operand().AsIdent(), get: f.GetFrom}
		}
	}
	return cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		m, ok := direct[i.ID()]
		if !ok {
			return i, nil
		}
		m.InterpretableV2 = i
		return &m, nil
	})
}
