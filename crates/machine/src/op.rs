//! The commands, one file each. None uses another.

pub(crate) mod activate_version;
pub(crate) mod correct;
pub(crate) mod decide;
pub(crate) mod due;
pub(crate) mod end_session;
pub(crate) mod engage;
pub(crate) mod fixture;
pub(crate) mod grant_budget;
pub(crate) mod init;
pub(crate) mod members;
pub(crate) mod post_exec;
pub(crate) mod pre_exec;
pub(crate) mod put_guard;
pub(crate) mod redeem;
pub(crate) mod refused;
pub(crate) mod register;
pub(crate) mod register_key;
pub(crate) mod release;
pub(crate) mod seal;
pub(crate) mod seen;
pub(crate) mod session_act;
pub(crate) mod set_budget;
