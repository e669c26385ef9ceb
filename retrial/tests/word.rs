//! The word, exhaustively: every mode on every kind of word, against rules written apart from the code.

use retrial::Mode;
use retrial::views::{Kind, Sid, Word};

const FLAGS: [u64; 4] = [Word::DRAINING, Word::HANDOVER, Word::ATTENTION, Word::POISONED];
const KINDS: [u64; 4] = [0, 1 << 56, 2 << 56, 3 << 56];

/// Every combination of flags, kinds, a few SIDs and reference counts.
fn words() -> impl Iterator<Item = Word> {
    let sids = [0u64, 1, 2, 0x7f_ffff, 0xff_ffff];
    let references = [0u64, 1, 2, 0xffff_fffe, 0xffff_ffff];
    (0..16u32).flat_map(move |set| {
        let flags: u64 = FLAGS.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, flag)| flag).sum();
        KINDS.into_iter().flat_map(move |kind| {
            sids.into_iter()
                .flat_map(move |sid| references.into_iter().map(move |n| Word(flags | kind | sid << 32 | n)))
        })
    })
}

#[test]
fn a_mode_is_granted_exactly_when_the_rules_say_so() {
    let me = Sid::new(7);
    let mut granted = 0;
    for word in words() {
        for mode in Mode::ALL {
            for handed in [false, true] {
                let nobody = word.sid().number() == 0;
                let alone = matches!(mode, Mode::Exclusive | Mode::LongExclusive);
                // For the reference of S, and for the one that E may turn into.
                let room = word.references() < u32::MAX;
                let expected = nobody
                    && !word.has(Word::DRAINING)
                    && (!word.has(Word::HANDOVER) || handed)
                    && (!alone || word.references() == 0)
                    && room;
                let got = word.grant(me, mode, handed);
                assert_eq!(got.is_some(), expected, "{mode} on {word:?}");
                let Some(got) = got else { continue };
                granted += 1;
                assert_eq!(got.sid(), me);
                assert_eq!(got.references(), word.references() + u32::from(mode == Mode::Shared), "{mode} on {word:?}");
                for flag in [Word::ATTENTION, Word::POISONED] {
                    assert_eq!(got.has(flag), word.has(flag), "{mode} on {word:?} keeps its flags");
                }
                // Over references it is for another session, which wants X.
                let stays = word.has(Word::HANDOVER) && word.references() > 0;
                assert_eq!(got.has(Word::HANDOVER), stays, "{mode} on {word:?}");
                let kind = match mode {
                    Mode::Shared => Kind::Moving,
                    Mode::Exclusive => Kind::Exclusive,
                    Mode::LongExclusive => Kind::Long,
                    Mode::Examine => Kind::Examine,
                };
                assert_eq!(got.kind(), Some(kind), "{mode} on {word:?}");
            }
        }
    }
    assert!(granted > 400, "{granted}");
}

#[test]
fn giving_back_undoes_a_grant() {
    let me = Sid::new(7);
    for word in words() {
        for mode in Mode::ALL {
            let Some(got) = word.grant(me, mode, true) else { continue };
            let back = got.give_back();
            assert!(back.sid().is_none());
            let sticky = got.0 & (Word::ATTENTION | Word::POISONED | Word::HANDOVER);
            assert_eq!(back.0, sticky | u64::from(got.references()), "{mode} on {word:?}");
            if mode == Mode::Shared {
                let taken = back.take_field(me).expect("a reference can be dropped while nobody has the field");
                assert_eq!(taken.drop_reference().give_back().references(), word.references());
            } else if mode != Mode::Examine {
                assert_eq!(got.released(), back);
            }
        }
    }
}

#[test]
fn a_reader_can_leave_exactly_when_nobody_has_the_field() {
    for word in words() {
        let can = word.take_field(Sid::new(7)).is_some();
        assert_eq!(can, word.sid().is_none() && word.references() > 0, "{word:?}");
    }
}

#[test]
fn a_reader_that_leaves_keeps_a_drain_and_a_handover() {
    for flag in [Word::DRAINING, Word::HANDOVER] {
        let word = Word(flag | 2);
        let left = word.take_field(Sid::new(7)).unwrap().drop_reference().give_back();
        assert_eq!(left, Word(flag | 1));
    }
}

#[test]
fn a_handover_over_references_outlasts_examine() {
    let me = Sid::new(7);
    for references in [1, 2] {
        let word = Word(Word::HANDOVER | references);
        let examined = word.promote(me, true).unwrap();
        assert_eq!((examined.kind(), examined.references()), (Some(Kind::Examine), word.references() - 1));
        assert_eq!(examined.give_back(), Word(Word::HANDOVER | (references - 1)));
        assert!(examined.drain().has(Word::HANDOVER));
        assert_eq!(word.promote(me, false), None);
    }
}

#[test]
fn a_drained_mutex_is_the_drainers_alone() {
    let me = Sid::new(7);
    for word in words() {
        let ready = word.has(Word::DRAINING) && word.sid().is_none() && word.references() == 0;
        assert_eq!(word.drained(me).is_some(), ready, "{word:?}");
        if let Some(mine) = word.drained(me) {
            assert_eq!((mine.sid(), mine.kind(), mine.has(Word::DRAINING)), (me, Some(Kind::Exclusive), false));
        }
    }
}

#[test]
fn the_sources_poked_word_reads_as_examine() {
    let word = Word(0x0000_0001_0000_0001);
    assert_eq!((word.sid().number(), word.references(), word.kind()), (1, 1, Some(Kind::Examine)));
    assert_eq!(word.to_string(), "sid 1 E, 1 references");
}

#[test]
fn a_guest_is_told_from_a_session_by_its_sid() {
    for tid in [1, 4711, Sid::MAX] {
        let guest = Sid::guest(tid);
        assert_eq!((guest.guest_tid(), guest.number()), (Some(tid), 1 << 23 | tid));
        assert_eq!(guest.to_string(), format!("tid {tid}"));
        assert_eq!((Sid::new(tid).guest_tid(), Sid::new(tid).number()), (None, tid));
        assert_eq!(format!("{:?}", Sid::new(tid)), format!("Sid({tid})"));
    }
    assert_eq!(Sid::new(0x0100_0000), Sid::NONE, "24 bits");
}

#[test]
fn who_cannot_be_passed_holds_exclusively() {
    let modes = [Kind::Exclusive, Kind::Long, Kind::Examine, Kind::Moving].map(Kind::mode);
    assert_eq!(modes, [Some(Mode::Exclusive), Some(Mode::LongExclusive), Some(Mode::Examine), None]);
    for word in words() {
        let expected = matches!(word.kind(), Some(Kind::Exclusive | Kind::Long));
        assert_eq!(word.is_exclusive(), expected, "{word:?}");
    }
}
