//! Patterns with stars: what fits, what is none, and what it costs.

use decision::id::ToolName;
use decision::pattern::{InvalidPattern, Pattern, ToolPattern};
use proptest::prelude::*;

/// A pattern | a tool's name | yes or no.
const NAMES: &str = "
pay            | pay            | yes
pay            | Pay            | no
pay            | pay2           | no
pay            | xpay           | no
*              | pay            | yes
pay*           | pay            | yes
pay*           | repay          | no
*pay           | repay          | yes
*a*            | pay            | yes
p*y            | py             | yes
p*p            | p              | no
ab*ba          | aba            | no
ab*ba          | abba           | yes
a*b*c          | a1b2b3c        | yes
a*b*c          | acb            | no
**             | pay            | yes
a**b           | ab             | yes
a*b*b          | ab             | no
*ab*ab*        | abab           | yes
*ab*ab*        | abaab          | yes
*ab*ab*        | aabb           | no
mcp.files.*    | mcp.files.read | yes
mcp.files.*    | mcp_files_read | no
p.y            | pay            | no
p?y            | pay            | no
[a-z]*         | pay            | no
pay            | pay*           | no
pay*           | pay*           | yes
pay            | ../pay         | no
pay            | pay;rm         | no
p*             | policy:error   | yes
zahl*          | zahlüng        | yes
*ü*            | zahlüng        | yes
";

#[test]
fn tools_are_named_exactly_or_with_stars() {
    for row in NAMES.lines().filter(|row| !row.is_empty()) {
        let fields: Vec<_> = row.split(" | ").map(str::trim).collect();
        let [pattern, tool, expected] = fields[..] else {
            panic!("{row}")
        };
        let (pattern, tool) = (
            ToolPattern::parse(pattern).unwrap(),
            ToolName::parse(tool).unwrap(),
        );
        assert_eq!(pattern.matches(&tool), expected == "yes", "{row}");
        assert_eq!(ToolPattern::parse(&pattern.to_string()), Ok(pattern));
    }
}

#[test]
fn what_is_no_pattern_is_refused() {
    for (text, why) in [
        ("", InvalidPattern::Length),
        ("a\nb", InvalidPattern::Control),
        ("a\0", InvalidPattern::Control),
        ("a\u{85}", InvalidPattern::Control),
    ] {
        assert_eq!(ToolPattern::parse(text), Err(why), "{text:?}");
        assert_eq!(Pattern::parse(text), Err(why), "{text:?}");
    }
    assert!(ToolPattern::parse(&"ü".repeat(128)).is_ok());
    assert_eq!(ToolPattern::parse(&"a".repeat(129)), Err(InvalidPattern::Length));
    assert!(Pattern::parse(&"a".repeat(256)).is_ok());
    assert_eq!(Pattern::parse(&"a".repeat(257)), Err(InvalidPattern::Length));
}

#[test]
fn star_upon_star_takes_no_longer_than_the_text_is() {
    let pattern = Pattern::parse(&"a*".repeat(127)).unwrap();
    let text = "a".repeat(1 << 20) + "b";
    assert!(pattern.matches(&text));
    assert!(!Pattern::parse(&("*a".repeat(127) + "*c")).unwrap().matches(&text));
    assert!(
        !Pattern::parse(&(format!("*{}b*b", "a".repeat(250))))
            .unwrap()
            .matches(&text)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pattern_matches_as_trying_every_place_does(pattern in "[ab*]{1,8}", text in "[ab]{0,10}") {
        fn slowly(pattern: &[u8], text: &[u8]) -> bool {
            match (pattern, text) {
                ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| slowly(rest, &text[skip..])),
                ([one, rest @ ..], [first, behind @ ..]) => one == first && slowly(rest, behind),
                (rest, left) => rest.is_empty() && left.is_empty(),
            }
        }
        let expected = slowly(pattern.as_bytes(), text.as_bytes());
        prop_assert_eq!(Pattern::parse(&pattern).unwrap().matches(&text), expected);
    }
}
