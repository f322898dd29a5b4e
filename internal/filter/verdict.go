package filter

import (
	"errors"
	"fmt"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"millrace/internal/operator/neardup"
)

// positionName is the name of the type of a record's position in the stream.
const positionName = "position"

var positionType = types.NewObjectType(typePrefix + positionName)

// verdictMembers returns the members of the variable of the operator neardup.
func verdictMembers() map[string]*types.FieldType {
	of := func(kind *types.Type, get func(v neardup.Verdict) ref.Val) *types.FieldType {
		return &types.FieldType{Type: kind, IsSet: isSet, GetFrom: func(value any) (any, error) {
			v, ok := neardup.ReadValue(*value.(*[]byte))
			if !ok {
				return nil, errors.New("the value is no verdict")
			}
			return get(v), nil
		}}
	}
	return map[string]*types.FieldType{
		"duplicate_of": of(positionType, func(v neardup.Verdict) ref.Val {
			if v.Bands == 0 {
				return types.NullValue
			}
			return position(v.DuplicateOf)
		}),
		"bands": of(types.IntType, func(v neardup.Verdict) ref.Val { return types.Int(v.Bands) }),
		"also": of(types.NewListType(positionType), func(v neardup.Verdict) ref.Val {
			all := make([]ref.Val, len(v.Also))
			for i, p := range v.Also {
				all[i] = position(p)
			}
			return types.NewRefValList(types.DefaultTypeAdapter, all)
		}),
	}
}

// positionMembers returns the members of a position.
func positionMembers() map[string]*types.FieldType {
	of := func(get func(p position) uint64) *types.FieldType {
		return &types.FieldType{Type: types.IntType, IsSet: isSet, GetFrom: func(p any) (any, error) { return types.Int(get(p.(position))), nil }}
	}
	return map[string]*types.FieldType{
		"sequence": of(func(p position) uint64 { return p.Sequence }),
		"record":   of(func(p position) uint64 { return p.Record }),
	}
}

// position is a record's position as an object of CEL.
type position neardup.Position

// ConvertToNative implements ref.Val.
func (p position) ConvertToNative(kind reflect.Type) (any, error) {
	return nil, fmt.Errorf("a position has no %v", kind)
}

// ConvertToType implements ref.Val.
func (p position) ConvertToType(kind ref.Type) ref.Val {
	if kind.TypeName() == positionType.TypeName() {
		return p
	}
	return types.NewErr("a position can't become a %s", kind.TypeName())
}

// Equal implements ref.Val.
func (p position) Equal(other ref.Val) ref.Val {
	o, ok := other.(position)
	return types.Bool(ok && p == o)
}

// Type implements ref.Val.
func (p position) Type() ref.Type { return positionType }

// Value implements ref.Val.
func (p position) Value() any { return p }
