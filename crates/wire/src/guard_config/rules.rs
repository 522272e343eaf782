//! `shackle.v1.Rule` ⇄ a rule as data.

use decision::json::Value;
use decision::policy::{
    Decimal, Effect, InvalidRules, Predicate, RULES_MAX, Rule, Scalar, TagTest, Test, check_rules,
};
use decision::{Pattern, RuleId};

use super::{at, tools};
use crate::invalid::{Invalid, id, known};
use crate::money;
use crate::proto::shackle::v1 as proto;

pub(super) fn read(rules: &[proto::Rule]) -> Result<Vec<Rule>, Invalid> {
    if rules.len() > RULES_MAX {
        return Err(Invalid::new("rules", format!("must be at most {RULES_MAX}")));
    }
    let rules = at("rules", rules, rule)?;
    match check_rules(&rules) {
        Err(InvalidRules::SameId(id)) => Err(Invalid::new("rules", format!("two have the id {id}"))),
        Err(other) => Err(Invalid::new("rules", other.to_string())),
        Ok(()) => Ok(rules),
    }
}

fn rule(rule: &proto::Rule) -> Result<Rule, Invalid> {
    let read = Rule {
        id: id("id", RuleId::parse(&rule.id))?,
        tools: tools("tools", &rule.tools)?,
        tags: at("tags", &rule.tags, |tag| {
            Ok(TagTest {
                key: tag.key.clone(),
                pattern: pattern("matches", &tag.matches)?,
                or_absent: tag.or_absent,
            })
        })?,
        when: at("when", &rule.when, predicate)?,
        effect: effect(rule)?,
    };
    match read.check() {
        Ok(()) => Ok(read),
        Err(refused) => Err(Invalid {
            field: match refused.field.as_str() {
                "effect" => "cost_usd".into(),
                field => field.replace(".test", ".values").into(),
            },
            why: refused.must.to_owned(),
        }),
    }
}

fn effect(rule: &proto::Rule) -> Result<Effect, Invalid> {
    let effect = match known("effect", rule.effect)? {
        proto::RuleEffect::Deny => Effect::Deny { trips: rule.trips },
        proto::RuleEffect::Ask => Effect::Ask,
        proto::RuleEffect::Cost => Effect::Cost(money::dollars("cost_usd", rule.cost_usd)?),
    };
    if rule.trips && !matches!(effect, Effect::Deny { .. }) {
        return Err(Invalid::new("trips", "is for rules that deny"));
    }
    if rule.cost_usd != 0.0 && !matches!(effect, Effect::Cost(_)) {
        return Err(Invalid::new("cost_usd", "is for rules with the effect cost"));
    }
    Ok(effect)
}

fn predicate(predicate: &proto::Predicate) -> Result<Predicate, Invalid> {
    use proto::PredicateOp as Op;
    let op: Op = known("op", predicate.op)?;
    let values = predicate.values.as_slice();
    let test = match (op, values) {
        (Op::Unspecified, _) => return Err(Invalid::new("op", "is needed")),
        (Op::Exists, []) => Test::Exists,
        (Op::Absent, []) => Test::Absent,
        (Op::Exists | Op::Absent, _) => return Err(Invalid::new("values", "must be empty for this op")),
        (Op::OneOf, values) => Test::OneOf(scalars(values)?),
        (Op::NoneOf, values) => Test::NoneOf(scalars(values)?),
        (Op::Equals, [value]) => Test::Equals(scalar(value)?),
        (Op::NotEquals, [value]) => Test::NotEquals(scalar(value)?),
        (Op::Less, [value]) => Test::Less(decimal(value)?),
        (Op::AtMost, [value]) => Test::AtMost(decimal(value)?),
        (Op::More, [value]) => Test::More(decimal(value)?),
        (Op::AtLeast, [value]) => Test::AtLeast(decimal(value)?),
        (Op::Matches, [value]) => Test::Matches(pattern("values", value)?),
        (Op::NotMatches, [value]) => Test::NotMatches(pattern("values", value)?),
        (Op::LongerThan, [value]) => Test::LongerThan(
            value
                .parse()
                .map_err(|_| Invalid::new("values", "must be a length, such as `100`"))?,
        ),
        (
            Op::Equals
            | Op::NotEquals
            | Op::Less
            | Op::AtMost
            | Op::More
            | Op::AtLeast
            | Op::Matches
            | Op::NotMatches
            | Op::LongerThan,
            _,
        ) => return Err(Invalid::new("values", "must be one for this op")),
    };
    Ok(Predicate {
        path: predicate.path.clone(),
        test,
    })
}

fn scalars(values: &[String]) -> Result<Vec<Scalar>, Invalid> {
    values.iter().map(|value| scalar(value)).collect()
}

fn scalar(text: &str) -> Result<Scalar, Invalid> {
    match Value::parse(text.as_bytes(), 0) {
        Ok(Value::Null) => Ok(Scalar::Null),
        Ok(Value::Bool(truth)) => Ok(Scalar::Bool(truth)),
        Ok(Value::Number(_)) => decimal(text.trim()).map(Scalar::Number),
        Ok(Value::String(text)) => Ok(Scalar::Text(text.into_owned())),
        Ok(Value::Array(_) | Value::Object(_)) | Err(_) => Err(Invalid::new(
            "values",
            "must be JSON scalars such as `100`, `\"eu\"`, `true`, `null`",
        )),
    }
}

fn decimal(text: &str) -> Result<Decimal, Invalid> {
    Decimal::parse(text).ok_or_else(|| {
        Invalid::new(
            "values",
            format!("must be a JSON number of at most {} characters", Decimal::LEN_MAX),
        )
    })
}

fn pattern(field: &'static str, text: &str) -> Result<Pattern, Invalid> {
    Pattern::parse(text).map_err(|invalid| Invalid::new(field, invalid.to_string()))
}

pub(super) fn write(rules: &[Rule]) -> Vec<proto::Rule> {
    let row = |rule: &Rule| {
        let (effect, trips, cost_usd) = match rule.effect {
            Effect::Deny { trips } => (proto::RuleEffect::Deny, trips, 0.0),
            Effect::Ask => (proto::RuleEffect::Ask, false, 0.0),
            Effect::Cost(cost) => (proto::RuleEffect::Cost, false, money::to_dollars(cost)),
        };
        proto::Rule {
            id: rule.id.as_str().to_owned(),
            tools: rule.tools.iter().map(|tool| tool.as_str().to_owned()).collect(),
            tags: rule
                .tags
                .iter()
                .map(|tag| proto::TagTest {
                    key: tag.key.clone(),
                    matches: tag.pattern.as_str().to_owned(),
                    or_absent: tag.or_absent,
                })
                .collect(),
            when: rule.when.iter().map(to_predicate).collect(),
            effect: effect.into(),
            trips,
            cost_usd,
        }
    };
    rules.iter().map(row).collect()
}

fn to_predicate(predicate: &Predicate) -> proto::Predicate {
    use proto::PredicateOp as Op;
    let one = |value: String| vec![value];
    let (op, values) = match &predicate.test {
        Test::Exists => (Op::Exists, Vec::new()),
        Test::Absent => (Op::Absent, Vec::new()),
        Test::Equals(value) => (Op::Equals, one(to_text(value))),
        Test::NotEquals(value) => (Op::NotEquals, one(to_text(value))),
        Test::OneOf(values) => (Op::OneOf, values.iter().map(to_text).collect()),
        Test::NoneOf(values) => (Op::NoneOf, values.iter().map(to_text).collect()),
        Test::Less(limit) => (Op::Less, one(limit.to_string())),
        Test::AtMost(limit) => (Op::AtMost, one(limit.to_string())),
        Test::More(limit) => (Op::More, one(limit.to_string())),
        Test::AtLeast(limit) => (Op::AtLeast, one(limit.to_string())),
        Test::Matches(pattern) => (Op::Matches, one(pattern.to_string())),
        Test::NotMatches(pattern) => (Op::NotMatches, one(pattern.to_string())),
        Test::LongerThan(length) => (Op::LongerThan, one(length.to_string())),
    };
    proto::Predicate {
        path: predicate.path.clone(),
        op: op.into(),
        values,
    }
}

fn to_text(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Scalar::Number(number) => number.to_string(),
        Scalar::Bool(truth) => truth.to_string(),
        Scalar::Null => "null".to_owned(),
    }
}
