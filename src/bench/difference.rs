use super::Error;
use crate::result::CowFill;
use crate::server::Variable;

/// Something that exists on the with side only: made before each of its windows, undone after it.
///
/// `()` is the difference that is none: both sides are the same, and the ratio shows the harness's own noise.
pub trait Difference {
    /// What it is, in LVM's words: `thick snapshot, 4 KiB chunks, 1 GiB COW store`.
    fn describe(&self) -> String;

    /// Whether making it freezes the filesystem, as a snapshot does. When it does not, the window gets the same
    /// freeze that those on the without side get.
    fn freezes(&self) -> bool {
        true
    }

    /// The server's variables that it changes; any other that changes makes the measurement invalid.
    fn variables(&self) -> Vec<&str> {
        Vec::new()
    }

    /// How it is doing; asked at the end of each window.
    ///
    /// # Errors
    /// When the state cannot be read.
    fn state(&self) -> Result<State, Error>;

    /// Takes it away again.
    ///
    /// # Errors
    /// When it cannot be taken away, or not entirely.
    fn undo(self) -> Result<(), Error>;
}

/// The state of a difference at the end of a window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    /// The COW store's fill, if there is one.
    pub cow: Option<CowFill>,
    /// Why the window says nothing: the snapshot overflowed, say.
    pub invalid: Option<String>,
}

impl Difference for () {
    fn describe(&self) -> String {
        "none".into()
    }

    fn freezes(&self) -> bool {
        false
    }

    fn state(&self) -> Result<State, Error> {
        Ok(State::default())
    }

    fn undo(self) -> Result<(), Error> {
        Ok(())
    }
}

/// A server variable, for what an option costs.
impl Difference for Variable {
    fn describe(&self) -> String {
        self.to_string()
    }

    fn freezes(&self) -> bool {
        false
    }

    fn variables(&self) -> Vec<&str> {
        vec![self.name()]
    }

    fn state(&self) -> Result<State, Error> {
        Ok(State::default())
    }

    fn undo(self) -> Result<(), Error> {
        Ok(self.restore()?)
    }
}

/// Two at once; the second, which was made later, is undone first.
impl<A: Difference, B: Difference> Difference for (A, B) {
    fn describe(&self) -> String {
        format!("{}, {}", self.0.describe(), self.1.describe())
    }

    fn freezes(&self) -> bool {
        self.0.freezes() || self.1.freezes()
    }

    fn variables(&self) -> Vec<&str> {
        [self.0.variables(), self.1.variables()].concat()
    }

    fn state(&self) -> Result<State, Error> {
        let (a, b) = (self.0.state()?, self.1.state()?);
        Ok(State {
            cow: a.cow.or(b.cow),
            invalid: a.invalid.or(b.invalid),
        })
    }

    fn undo(self) -> Result<(), Error> {
        let undone = self.1.undo();
        self.0.undo().and(undone)
    }
}
