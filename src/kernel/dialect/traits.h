/* SPDX-License-Identifier: Apache-2.0 */
/* traits.h - Metal's questions about types (metal_type_traits), its integral_constant and sequences, move and
 * forward. half and bfloat are numbers of it. What needs the compiler's help asks the names that g++, clang and NVRTC
 * share. */
#ifndef QN_DIALECT_TRAITS_H
#define QN_DIALECT_TRAITS_H
#include "kernel/dialect/half.h"
#include "kernel/dialect/vec.h"
#include "kernel/dialect/metal_types.h"

namespace QN_WORDS {
template <class T, T v> struct integral_constant {
  static constexpr T value = v;
  typedef T value_type;
  typedef integral_constant type;
  constexpr QN_WORD operator T() const { return v; }
  constexpr QN_WORD T operator()() const { return v; }
};
template <bool v> using bool_constant = integral_constant<bool, v>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <class... T> using void_t = void;

/* ---- other types from types ---- */
#define QN_TYPE(name) template <class T> using name##_t = typename name<T>::type;
#define QN_TYPE_OF(name, of, to)                                                                                       \
  template <class T> struct name<of> {                                                                                 \
    typedef to type;                                                                                                   \
  };
template <bool which, class A, class B> struct qn_chosen {
  typedef A type;
};
template <class A, class B> struct qn_chosen<false, A, B> {
  typedef B type;
};
template <bool which, class A, class B> using qn_if_else = typename qn_chosen<which, A, B>::type;
template <class T> struct qn_itself {
  typedef T type;
};
template <class T> struct remove_const : qn_itself<T> {
};
QN_TYPE_OF(remove_const, const T, T)
QN_TYPE(remove_const)
template <class T> struct remove_volatile : qn_itself<T> {
};
QN_TYPE_OF(remove_volatile, volatile T, T)
QN_TYPE(remove_volatile)
template <class T> struct remove_cv : qn_itself<T> {
};
QN_TYPE_OF(remove_cv, const T, T)
QN_TYPE_OF(remove_cv, volatile T, T)
QN_TYPE_OF(remove_cv, const volatile T, T)
QN_TYPE(remove_cv)
template <class T> struct remove_reference : qn_itself<T> {
};
QN_TYPE_OF(remove_reference, T &, T)
QN_TYPE_OF(remove_reference, T &&, T)
QN_TYPE(remove_reference)
template <class T> struct remove_cvref : remove_cv<remove_reference_t<T>> {
};
QN_TYPE(remove_cvref)
template <class T> struct qn_without_pointer : qn_itself<T> {
};
QN_TYPE_OF(qn_without_pointer, T *, T)
template <class T> struct remove_pointer {
  typedef qn_if_else<qn_is<typename qn_without_pointer<remove_cv_t<T>>::type, remove_cv_t<T>>::same, T,
                     typename qn_without_pointer<remove_cv_t<T>>::type>
      type;
};
QN_TYPE(remove_pointer)
template <class T> struct remove_extent : qn_itself<T> {
};
QN_TYPE_OF(remove_extent, T[], T)
template <class T, decltype(sizeof 0) n> struct remove_extent<T[n]> : qn_itself<T> {
};
QN_TYPE(remove_extent)
template <class T> struct remove_all_extents : qn_itself<T> {
};
template <class T> struct remove_all_extents<T[]> : remove_all_extents<T> {
};
template <class T, decltype(sizeof 0) n> struct remove_all_extents<T[n]> : remove_all_extents<T> {
};
QN_TYPE(remove_all_extents)
template <class T> struct add_const : qn_itself<const T> {
};
QN_TYPE(add_const)
template <class T> struct add_volatile : qn_itself<volatile T> {
};
QN_TYPE(add_volatile)
template <class T> struct add_cv : qn_itself<const volatile T> {
};
QN_TYPE(add_cv)
template <class T> QN_DEVICE qn_itself<T &> qn_lvalue_of(int);
template <class T> QN_DEVICE qn_itself<T> qn_lvalue_of(...);
template <class T> QN_DEVICE qn_itself<T &&> qn_rvalue_of(int);
template <class T> QN_DEVICE qn_itself<T> qn_rvalue_of(...);
template <class T> struct add_lvalue_reference : decltype(qn_lvalue_of<T>(0)) {
};
QN_TYPE(add_lvalue_reference)
template <class T> struct add_rvalue_reference : decltype(qn_rvalue_of<T>(0)) {
};
QN_TYPE(add_rvalue_reference)
template <class T> struct add_pointer : qn_itself<remove_reference_t<T> *> {
};
QN_TYPE(add_pointer)
template <class T> QN_DEVICE add_rvalue_reference_t<T> declval();
template <bool which, class A, class B> struct conditional : qn_itself<qn_if_else<which, A, B>> {
};
template <bool which, class A, class B> using conditional_t = qn_if_else<which, A, B>;
template <bool there, class T = void> struct enable_if : qn_if<there, T> {
};
template <bool there, class T = void> using enable_if_t = typename qn_if<there, T>::type;

/* ---- questions of one type ---- */
#define QN_ASK(name, answer)                                                                                           \
  template <class T> struct name : bool_constant<(answer)> {                                                           \
  };                                                                                                                   \
  template <class T> constexpr bool name##_v = name<T>::value;
template <class A, class B> struct is_same : bool_constant<qn_is<A, B>::same> {
};
template <class A, class B> constexpr bool is_same_v = qn_is<A, B>::same;
template <class T> struct qn_shape_of {
  static constexpr int pointer = 0, array = 0, reference = 0;
};
template <class T> struct qn_shape_of<T *> {
  static constexpr int pointer = 1, array = 0, reference = 0;
};
template <class T> struct qn_shape_of<T[]> {
  static constexpr int pointer = 0, array = 1, reference = 0;
};
template <class T, decltype(sizeof 0) n> struct qn_shape_of<T[n]> {
  static constexpr int pointer = 0, array = 1, reference = 0;
};
template <class T> struct qn_shape_of<T &> {
  static constexpr int pointer = 0, array = 0, reference = 1;
};
template <class T> struct qn_shape_of<T &&> {
  static constexpr int pointer = 0, array = 0, reference = 2;
};
QN_ASK(is_void, (qn_is<void, remove_cv_t<T>>::same))
QN_ASK(is_null_pointer, (qn_is<decltype(nullptr), remove_cv_t<T>>::same))
QN_ASK(is_enum, __is_enum(T))
QN_ASK(is_union, __is_union(T))
QN_ASK(is_class, __is_class(T) && qn_kind<remove_cv_t<T>>::value != 2)
QN_ASK(is_integral, qn_kind<remove_cv_t<T>>::value == 1 && !__is_enum(T))
QN_ASK(is_floating_point, qn_kind<remove_cv_t<T>>::value >= 2)
QN_ASK(is_arithmetic, qn_kind<remove_cv_t<T>>::value != 0 && !__is_enum(T))
QN_ASK(is_fundamental, is_arithmetic<T>::value || is_void<T>::value || is_null_pointer<T>::value)
QN_ASK(is_compound, !is_fundamental<T>::value)
QN_ASK(is_pointer, qn_shape_of<remove_cv_t<T>>::pointer)
QN_ASK(is_array, qn_shape_of<T>::array)
QN_ASK(is_reference, qn_shape_of<T>::reference != 0)
QN_ASK(is_lvalue_reference, qn_shape_of<T>::reference == 1)
QN_ASK(is_rvalue_reference, qn_shape_of<T>::reference == 2)
QN_ASK(is_const, (!qn_is<T, typename remove_const<T>::type>::same))
QN_ASK(is_volatile, (!qn_is<T, typename remove_volatile<T>::type>::same))
QN_ASK(is_function, !is_const<const T>::value && !is_reference<T>::value)
QN_ASK(is_scalar, is_arithmetic<T>::value || __is_enum(T) || is_pointer<T>::value || is_null_pointer<T>::value)
QN_ASK(is_object, !is_function<T>::value && !is_reference<T>::value && !is_void<T>::value)
QN_ASK(is_empty, __is_empty(T))
QN_ASK(is_final, __is_final(T))
QN_ASK(is_abstract, __is_abstract(T))
QN_ASK(is_polymorphic, __is_polymorphic(T))
QN_ASK(is_trivial, __is_trivial(T))
QN_ASK(is_trivially_copyable, __is_trivially_copyable(T))
QN_ASK(is_standard_layout, __is_standard_layout(T))
QN_ASK(is_pod, __is_pod(T))
QN_ASK(is_literal_type, __is_literal_type(T))
template <class T, int kind = is_arithmetic<T>::value ? qn_kind<remove_cv_t<T>>::value : 0> struct qn_sign {
  static constexpr bool yes = kind >= 2, no = false;
};
template <class T> struct qn_sign<T, 1> {
  static constexpr bool yes = T(-1) < T(0), no = !yes;
};
QN_ASK(is_signed, qn_sign<T>::yes)
QN_ASK(is_unsigned, qn_sign<T>::no)

/* ---- questions of several ---- */
template <class T, class... A> struct is_constructible : bool_constant<__is_constructible(T, A...)> {
};
template <class T, class... A> constexpr bool is_constructible_v = is_constructible<T, A...>::value;
QN_ASK(is_default_constructible, __is_constructible(T))
QN_ASK(is_copy_constructible, __is_constructible(T, const T &))
QN_ASK(is_move_constructible, __is_constructible(T, T &&))
template <class A, class B> struct is_base_of : bool_constant<__is_base_of(A, B)> {
};
template <class A, class B> constexpr bool is_base_of_v = is_base_of<A, B>::value;
template <class T> QN_DEVICE void qn_give(T);
template <class A, class B, class = decltype(qn_give<B>(declval<A>()))> QN_DEVICE true_type qn_converts(int);
template <class A, class B> QN_DEVICE false_type qn_converts(...);
template <class A, class B>
struct is_convertible
    : bool_constant<(is_void<A>::value && is_void<B>::value) || decltype(qn_converts<A, B>(0))::value> {
};
template <class A, class B> constexpr bool is_convertible_v = is_convertible<A, B>::value;
template <class... T> struct conjunction : bool_constant<(true && ... && bool(T::value))> {
};
template <class... T> constexpr bool conjunction_v = conjunction<T...>::value;
template <class... T> struct disjunction : bool_constant<(false || ... || bool(T::value))> {
};
template <class... T> constexpr bool disjunction_v = disjunction<T...>::value;
QN_ASK(negation, !bool(T::value))
template <class T> struct alignment_of : integral_constant<decltype(sizeof 0), alignof(T)> {
};
template <class T> constexpr decltype(sizeof 0) alignment_of_v = alignof(T);
template <class T> struct rank : integral_constant<decltype(sizeof 0), 0> {
};
template <class T> struct rank<T[]> : integral_constant<decltype(sizeof 0), rank<T>::value + 1> {
};
template <class T, decltype(sizeof 0) n> struct rank<T[n]> : integral_constant<decltype(sizeof 0), rank<T>::value + 1> {
};
template <class T> constexpr decltype(sizeof 0) rank_v = rank<T>::value;
template <class T, unsigned k = 0> struct extent : integral_constant<decltype(sizeof 0), 0> {
};
template <class T, unsigned k> struct extent<T[], k> : extent<T, k - 1> {
};
template <class T> struct extent<T[], 0> : integral_constant<decltype(sizeof 0), 0> {
};
template <class T, decltype(sizeof 0) n, unsigned k> struct extent<T[n], k> : extent<T, k - 1> {
};
template <class T, decltype(sizeof 0) n> struct extent<T[n], 0> : integral_constant<decltype(sizeof 0), n> {
};
template <class T, unsigned k = 0> constexpr decltype(sizeof 0) extent_v = extent<T, k>::value;

template <class T, bool is_array, bool is_function> struct qn_decayed : remove_cv<T> {
};
template <class T, bool is_function> struct qn_decayed<T, true, is_function> : qn_itself<remove_extent_t<T> *> {
};
template <class T> struct qn_decayed<T, false, true> : qn_itself<T *> {
};
template <class T>
struct decay : qn_decayed<remove_reference_t<T>, is_array<remove_reference_t<T>>::value,
                          is_function<remove_reference_t<T>>::value> {
};
QN_TYPE(decay)
template <class T> struct underlying_type {
  typedef __underlying_type(T) type;
};
QN_TYPE(underlying_type)
template <class... T> struct common_type;
template <class T> struct common_type<T> : decay<T> {
};
template <class A, class B> struct common_type<A, B> {
  typedef qn_common<typename decay<A>::type, typename decay<B>::type> type;
};
template <class A, class B, class C, class... D>
struct common_type<A, B, C, D...> : common_type<typename common_type<A, B>::type, C, D...> {
};
template <class... T> using common_type_t = typename common_type<T...>::type;
template <class T> struct make_signed;
template <class T> struct make_unsigned;
#define QN_SIGNS(signed_type, unsigned_type)                                                                           \
  template <> struct make_signed<signed_type> : qn_itself<signed_type> {                                               \
  };                                                                                                                   \
  template <> struct make_signed<unsigned_type> : qn_itself<signed_type> {                                             \
  };                                                                                                                   \
  template <> struct make_unsigned<signed_type> : qn_itself<unsigned_type> {                                           \
  };                                                                                                                   \
  template <> struct make_unsigned<unsigned_type> : qn_itself<unsigned_type> {                                         \
  };
QN_SIGNS(signed char, unsigned char)
QN_SIGNS(short, unsigned short)
QN_SIGNS(int, unsigned)
QN_SIGNS(long, unsigned long)
#undef QN_SIGNS
QN_TYPE(make_signed)
QN_TYPE(make_unsigned)
template <class T> struct make_scalar : qn_itself<T> {
};
template <class T, int N> struct make_scalar<vec<T, N>> : qn_itself<T> {
};
QN_TYPE(make_scalar)
template <class T, int N> struct make_vector : qn_itself<vec<T, N>> {
};
template <class T, int N> using make_vector_t = vec<T, N>;
template <class T> struct vec_elements : integral_constant<int, 1> {
};
template <class T, int N> struct vec_elements<vec<T, N>> : integral_constant<int, N> {
};
template <class T> constexpr int vec_elements_v = vec_elements<T>::value;
QN_ASK(is_vector, vec_elements<T>::value > 1)
#undef QN_ASK
#undef QN_TYPE
#undef QN_TYPE_OF

/* ---- sequences, and what moves values ---- */
template <class T, T... k> struct integer_sequence {
  typedef T value_type;
  static constexpr QN_WORD decltype(sizeof 0) size() { return sizeof...(k); }
};
template <decltype(sizeof 0)... k> using index_sequence = integer_sequence<decltype(sizeof 0), k...>;
template <class T, unsigned long n, T... k> struct qn_counted : qn_counted<T, n - 1, T(n - 1), k...> {
};
template <class T, T... k> struct qn_counted<T, 0, k...> : qn_itself<integer_sequence<T, k...>> {
};
template <class T, T n> using make_integer_sequence = typename qn_counted<T, n>::type;
template <decltype(sizeof 0) n> using make_index_sequence = make_integer_sequence<decltype(sizeof 0), n>;
template <class T> constexpr QN_WORD remove_reference_t<T> &&move(T &&x)
{
  return static_cast<remove_reference_t<T> &&>(x);
}
template <class T> constexpr QN_WORD T &&forward(remove_reference_t<T> &x) { return static_cast<T &&>(x); }
} // namespace QN_WORDS
#endif
