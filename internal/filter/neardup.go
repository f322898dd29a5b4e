package filter

import (
	"errors"
	"fmt"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// isStateful reports whether an operator is stateful. The values of stateful operators are verdicts of package neardup.
func isStateful(op operator.Operator) bool {
	_, ok := op.(operator.Stateful)
	return ok
}

// positionType is the type of the position of a record in the stream.
var positionType = types.NewObjectType(typePrefix + "position")

// addVerdict adds the variable of the stateful operator called name.
func (v *variables) addVerdict(name string) {
	v.operators = append(v.operators, result{name: name})
	v.members[positionType.TypeName()] = map[string]*types.FieldType{
		"sequence": positionMember(func(p position) uint64 { return p.Sequence }),
		"record":   positionMember(func(p position) uint64 { return p.Record }),
	}
	v.members[typePrefix+name] = map[string]*types.FieldType{
		"duplicate_of": verdictMember(positionType, func(v neardup.Verdict) ref.Val {
			if v.Bands == 0 {
				return types.NullValue
			}
			return position(v.DuplicateOf)
		}),
		"bands": verdictMember(types.IntType, func(v neardup.Verdict) ref.Val { return types.Int(v.Bands) }),
		"also": verdictMember(types.NewListType(positionType), func(v neardup.Verdict) ref.Val {
			all := make([]ref.Val, len(v.Also))
			for i, p := range v.Also {
				all[i] = position(p)
			}
			return types.NewRefValList(types.DefaultTypeAdapter, all)
		}),
	}
}

// verdictMember returns a member of type t. get reads its value from the verdict.
func verdictMember(t *types.Type, get func(neardup.Verdict) ref.Val) *types.FieldType {
	return &types.FieldType{Type: t, IsSet: isSet, GetFrom: func(value any) (any, error) {
		v, ok := neardup.ReadValue(*value.(*[]byte))
		if !ok {
			return nil, errors.New("the verdict on the record is invalid")
		}
		return get(v), nil
	}}
}

// positionMember returns an integer member. get reads its value from the position. Sequences and numbers of records are below
// 2^63, so CEL's type int can represent them.
func positionMember(get func(position) uint64) *types.FieldType {
	return &types.FieldType{Type: types.IntType, IsSet: isSet, GetFrom: func(value any) (any, error) {
		p, ok := value.(position)
		if !ok {
			return nil, errors.New("the record isn't a duplicate, so duplicate_of is null: compare it with null first")
		}
		return types.Int(get(p)), nil
	}}
}

// position is the position of a record in the stream, as a value of CEL. It implements ref.Val.
type position neardup.Position

// ConvertToNative implements ref.Val. It always fails, because nothing needs it.
func (p position) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("a position can't become %v", t)
}

// ConvertToType implements ref.Val.
func (p position) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return positionType
	}
	return types.NewErr("a position can't become %v", t)
}

// Equal implements ref.Val.
func (p position) Equal(other ref.Val) ref.Val {
	o, ok := other.(position)
	return types.Bool(ok && o == p)
}

// Type implements ref.Val.
func (p position) Type() ref.Type { return positionType }

// Value implements ref.Val.
func (p position) Value() any { return p }
