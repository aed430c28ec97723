//! Quantities against a model made of nothing but decimal digits, of any length.
//!
//! The model lines both numbers up at nano and works on the digit strings, so that it shares no
//! arithmetic with the type it checks.

use super::*;

/// The magnitude in nano units as digits without leading zeros, from a mantissa and power of ten.
fn nano_digits(mantissa: u128, power: i32) -> String {
    let places = usize::try_from(power + 9).expect("the strategy stays at or above nano");
    let digits = format!("{mantissa}{}", "0".repeat(places));
    digits.trim_start_matches('0').to_owned()
}

fn model_order(one: (i128, i32), two: (i128, i32)) -> Ordering {
    let sides = [one, two]
        .map(|(mantissa, power)| (mantissa.signum(), nano_digits(mantissa.unsigned_abs(), power)));
    let [(sign, digits), (other_sign, other_digits)] = sides;
    sign.cmp(&other_sign).then_with(|| {
        let by_size = digits.len().cmp(&other_digits.len()).then_with(|| digits.cmp(&other_digits));
        if sign < 0 { by_size.reverse() } else { by_size }
    })
}

/// Adds two magnitudes digit by digit.
fn model_sum(one: &str, two: &str) -> String {
    let mut carry = 0;
    let mut result = Vec::new();
    let (mut one, mut two) = (one.bytes().rev(), two.bytes().rev());
    loop {
        let (left, right) = (one.next(), two.next());
        if left.is_none() && right.is_none() && carry == 0 {
            break;
        }
        let digit = |side: Option<u8>| side.map_or(0, |byte| byte - b'0');
        let sum = digit(left) + digit(right) + carry;
        result.push(char::from(b'0' + sum % 10));
        carry = sum / 10;
    }
    result.iter().rev().collect()
}

fn amount() -> impl Strategy<Value = (i128, i32)> {
    let limit = 10_i128.pow(37);
    let mantissa = prop_oneof![-limit..limit, -1000_i128..1000, Just(0)];
    (mantissa, -9..40_i32)
}

fn made(amount: (i128, i32)) -> Quantity {
    quantity(&format!("{}e{}", amount.0, amount.1))
}

proptest! {
    #[test]
    fn order_agrees(one in amount(), two in amount(), scale in 0..6_i32) {
        prop_assert_eq!(made(one).cmp(&made(two)), model_order(one, two));
        // The same amount in other words, and its nearest neighbour.
        let close = (two.0 / 10_i128.pow(scale.unsigned_abs()), two.1 + scale);
        prop_assert_eq!(made(two).cmp(&made(close)), model_order(two, close));
        prop_assert_eq!(made(one) == made(two), model_order(one, two) == Ordering::Equal);
    }

    #[test]
    fn sums_agree(one in amount(), two in amount()) {
        let (one, two) = ((one.0.abs(), one.1), (two.0.abs(), two.1));
        let model = model_sum(
            &nano_digits(one.0.unsigned_abs(), one.1),
            &nano_digits(two.0.unsigned_abs(), two.1),
        );
        let ours = made(one).checked_add(&made(two));
        match ours {
            Some(sum) => {
                let digits = nano_digits(sum.mantissa.unsigned_abs(), sum.exponent);
                prop_assert_eq!(digits, model);
            }
            None => prop_assert!(model.trim_end_matches('0').len() > 38, "{} fits", model),
        }
    }

    #[test]
    fn whole_units_agree((mantissa, power) in (any::<i64>(), -9..1_i32)) {
        let text = format!("{mantissa}e{power}");
        let divisor = 10_i128.pow(power.unsigned_abs());
        let exact = i128::from(mantissa);
        let floor = exact.div_euclid(divisor);
        let rounded = if exact % divisor == 0 || exact < 0 { floor } else { floor + 1 };
        prop_assert_eq!(i128::from(quantity(&text).value()), rounded);
    }
}
