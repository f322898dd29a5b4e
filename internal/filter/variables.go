package filter

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"millrace/client/quality"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
)

// The variables that don't depend on the operators.
const (
	recordName = "record" // an object with the number and the sizes of the record
	fieldsName = "fields" // a map from the names of kept fields to their values
)

// typePrefix precedes the name of a variable in the name of its type.
const typePrefix = "millrace."

// variables are the variables of an expression. Each operator has a variable with the operator's name. The members of the variable
// are the members of the operator's JSON result. If that result isn't an object, the value of the variable is the result.
type variables struct {
	types.Provider
	operators []result
	kept      []string
	used      map[string]bool                        // names of the kept fields in the expression; nil if it may use any
	members   map[string]map[string]*types.FieldType // by type and name
	optional  map[string]string                      // the parameter that an absent field depends on, by the field's type and name
	advice    string                                 // advice for an expression with an absent field
}

// result is an operator and the way in which its values are read. For a stateful operator, only name is set.
type result struct {
	name string
	*compiled.Operator
	bare func(value []byte) ref.Val // reads the value; nil if the JSON result is an object
}

func newVariables(ops []operator.Operator, kept []string) *variables {
	v := &variables{
		kept: kept, members: map[string]map[string]*types.FieldType{typePrefix + recordName: recordMembers()}, optional: map[string]string{},
	}
	for _, op := range ops {
		if isStateful(op) {
			v.addVerdict(op.Name())
			continue
		}
		r := result{name: op.Name(), Operator: op.(operator.Declared).Declaration()}
		if r.Fields()[0].BareJSON {
			r.bare = r.reader(0)
		} else {
			v.members[typePrefix+r.name] = r.members()
			v.addOptional(&r)
		}
		v.operators = append(v.operators, r)
	}
	return v
}

// qualityName is the name of the operator whose counters presets use.
const qualityName = "quality"

// addOptional adds the fields that the operator would have with another value of a parameter.
func (v *variables) addOptional(r *result) {
	d := r.Description()
	for _, f := range d.Fields {
		if _, ok := v.members[typePrefix+r.name][f.Name]; !ok {
			v.optional[typePrefix+r.name+"."+f.Name] = d.Parameters[f.CountParameter].Name
		}
	}
}

// advise adds advice to the error of an expression that contains an absent field.
func (v *variables) advise(err error) error {
	if v.advice == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, v.advice)
}

// hasNGrams reports whether the operator of presets counts duplicate n-grams.
func (v *variables) hasNGrams() bool {
	_, ok := v.members[typePrefix+qualityName][quality.Duplicate5GramChars.String()]
	return ok
}

// has reports whether there is an operator with the given name.
func (v *variables) has(name string) bool {
	return slices.ContainsFunc(v.operators, func(r result) bool { return r.name == name })
}

// environment returns the environment in which expressions are compiled.
func (v *variables) environment() (*cel.Env, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	v.Provider = registry
	options := []cel.EnvOption{
		cel.CustomTypeProvider(v), cel.CrossTypeNumericComparisons(true), cel.EnableMacroCallTracking(),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.Variable(recordName, types.NewObjectType(typePrefix+recordName)),
		cel.Variable(fieldsName, types.NewMapType(types.StringType, types.DynType)),
	}
	for _, r := range v.operators {
		kind := types.NewObjectType(typePrefix + r.name)
		if r.bare != nil {
			kind = fieldType(&r.Fields()[0])
		}
		options = append(options, cel.Variable(r.name, kind))
	}
	return cel.NewEnv(options...)
}

// FindStructType implements types.Provider.
func (v *variables) FindStructType(name string) (*types.Type, bool) {
	if _, ok := v.members[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return v.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (v *variables) FindStructFieldNames(name string) ([]string, bool) {
	members, ok := v.members[name]
	if !ok {
		return v.Provider.FindStructFieldNames(name)
	}
	names := make([]string, 0, len(members))
	for member := range members {
		names = append(names, member)
	}
	slices.Sort(names)
	return names, true
}

// FindStructFieldType implements types.Provider.
func (v *variables) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	members, ok := v.members[name]
	if !ok {
		return v.Provider.FindStructFieldType(name, field)
	}
	if parameter := v.optional[name+"."+field]; parameter != "" {
		v.advice = fmt.Sprintf("the operator has %s only with %s?%s=true", field, strings.TrimPrefix(name, typePrefix), parameter)
	}
	f, ok := members[field]
	return f, ok
}

// variablesOf returns the names of the variables in an expression.
func variablesOf(a *ast.AST) (names []string) {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(a), ast.KindMatcher(ast.IdentKind)) {
		names = append(names, e.AsIdent())
	}
	return names
}

// checkFields sets used. It returns an error if an expression names a field that isn't kept.
func (v *variables) checkFields(a *ast.AST) error {
	isFields := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == fieldsName }
	named := map[string]bool{}
	places, names := 0, 0 // number of uses of the variable, and number of uses with a constant name
	for _, e := range ast.MatchDescendants(ast.NavigateAST(a), ast.AllMatcher()) {
		name := ""
		switch e.Kind() {
		case ast.IdentKind:
			if isFields(e) {
				places++
			}
		case ast.SelectKind:
			if isFields(e.AsSelect().Operand()) {
				name = e.AsSelect().FieldName()
			}
		case ast.CallKind:
			args := e.AsCall().Args()
			if e.AsCall().FunctionName() == operators.Index && isFields(args[0]) && args[1].Kind() == ast.LiteralKind {
				name, _ = args[1].AsLiteral().Value().(string)
			}
		}
		if name == "" {
			continue
		}
		if !slices.Contains(v.kept, name) {
			place := a.SourceInfo().GetStartLocation(e.ID())
			return fmt.Errorf("line %d, column %d: the field %q isn't kept: add it to MILLRACE_KEEP_FIELDS", place.Line(), place.Column()+1, name)
		}
		named[name] = true
		names++
	}
	if places == names {
		v.used = named
	}
	return nil
}

// recordMembers returns the members of the variable record.
func recordMembers() map[string]*types.FieldType {
	of := func(get func(r *Row) int) *types.FieldType {
		return &types.FieldType{Type: types.IntType, IsSet: isSet, GetFrom: func(row any) (any, error) { return types.Int(get(row.(*Row))), nil }}
	}
	return map[string]*types.FieldType{
		"number":       of(func(r *Row) int { return r.Number }),
		"bytes":        of(func(r *Row) int { return r.Bytes }),
		"source_bytes": of(func(r *Row) int { return r.SourceBytes }),
	}
}

func isSet(any) bool { return true }

// members returns the members of an operator's variable: the parameters that its JSON result shows, and its fields.
func (r *result) members() map[string]*types.FieldType {
	all := map[string]*types.FieldType{}
	for i, p := range r.Description().Parameters {
		if p.Shown {
			value := numberOf(p.Type, r.Value(i))
			all[p.Name] = &types.FieldType{Type: numberType(p.Type), IsSet: isSet, GetFrom: func(any) (any, error) { return value, nil }}
		}
	}
	for i := range r.Fields() {
		read := r.reader(i)
		all[r.Fields()[i].Name] = &types.FieldType{
			Type: fieldType(&r.Fields()[i]), IsSet: isSet, GetFrom: func(value any) (any, error) { return read(*value.(*[]byte)), nil },
		}
	}
	return all
}

// fieldType returns the type of a field. Text in hexadecimal is a string, as in JSON.
func fieldType(f *compiled.Field) *types.Type {
	kind := elementType(f)
	if f.Array && !(f.Type == compiled.Uint8 && f.Hex) {
		return types.NewListType(kind)
	}
	return kind
}

// elementType returns the type of an element of a field.
func elementType(f *compiled.Field) *types.Type {
	switch {
	case f.Hex:
		return types.StringType
	case f.Type == compiled.Bytes:
		return types.BytesType
	}
	return numberType(f.Type)
}

// numberType returns the type of a parameter, or of an element of a field, of type t. Only uint64 has numbers that CEL's type int can't
// represent.
func numberType(t compiled.Type) *types.Type {
	switch t {
	case compiled.Bool:
		return types.BoolType
	case compiled.Float32, compiled.Float64:
		return types.DoubleType
	case compiled.Uint64:
		return types.UintType
	}
	return types.IntType
}

// numberOf returns a number of type t.
func numberOf(t compiled.Type, n compiled.Number) ref.Val {
	switch numberType(t) {
	case types.BoolType:
		return types.Bool(n != 0)
	case types.DoubleType:
		return types.Double(n.Float())
	case types.UintType:
		return types.Uint(n)
	}
	return types.Int(n)
}

// reader returns a function that reads the field with index i from a value of the operator.
func (r *result) reader(i int) func(value []byte) ref.Val {
	f := r.Fields()[i]
	at, count := r.Place(i)
	size := f.Type.Size()
	switch {
	case f.Type == compiled.Bytes && f.Hex:
		return func(value []byte) ref.Val { return types.String(hex.EncodeToString(r.Text(i, value))) }
	case f.Type == compiled.Bytes:
		return func(value []byte) ref.Val { return types.Bytes(slices.Clone(r.Text(i, value))) }
	case f.Array && f.Type == compiled.Uint8 && f.Hex:
		return func(value []byte) ref.Val { return types.String(hex.EncodeToString(value[at : at+count])) }
	case f.Array:
		return func(value []byte) ref.Val {
			all := make([]ref.Val, count)
			for k := range all {
				all[k] = number(&f, value[at+k*size:][:size])
			}
			return types.NewRefValList(types.DefaultTypeAdapter, all)
		}
	}
	return func(value []byte) ref.Val { return number(&f, value[at:][:size]) }
}

// number returns the element of a field that data contains.
func number(f *compiled.Field, data []byte) ref.Val {
	if !f.Hex {
		return numberOf(f.Type, f.Type.Number(data))
	}
	digits := slices.Clone(data)
	slices.Reverse(digits)
	return types.String(hex.EncodeToString(digits))
}
