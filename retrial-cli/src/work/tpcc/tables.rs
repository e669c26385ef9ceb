//! Small tables in the instance's memory, each behind a named mutex, and transactions on one or two of them
//! that are all or nothing, also when their session is killed.
//!
//! A table has its rows twice, and a version whose last bit says which of them are true. A transaction writes
//! the other ones; one store of the version makes them true. Of a transaction on two tables the store in the
//! district is that: its new rows have the version that the other table, its partner, is to get. So a session
//! that finds a partner with a transaction under way sees in the district whether it was committed, and
//! completes or forgets it. Partners are got before districts.

use super::super::{Seat, then};
use super::{COMPLETED, OWNER_DIED, UNDONE};
use crate::instances::object_error;
use miette::{Report, miette};
use retrial::zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};
use retrial::{CodeLocation, GetError, Guard, Instance, Mode, Mutex, Patience, location};

pub const WAREHOUSES: usize = 2;
/// Districts of a warehouse.
pub const DISTRICTS: usize = 10;
/// Customers of a district.
pub const CUSTOMERS: usize = 30;
/// Items that a warehouse has in stock.
pub const ITEMS: usize = 100;
/// Orders that a district keeps.
pub const ORDERS: usize = 32;
/// Most lines of an order.
pub const LINES: usize = 15;

/// Makes plain rows of numbers, of which all bytes 0 is a value.
macro_rules! rows {
    ($( $(#[doc = $doc:literal])* $name:ident { $( $(#[doc = $field_doc:literal])* $field:ident: $type:ty, )* } )*) => { $(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
        #[zerocopy(crate = "retrial::zerocopy")]
        #[repr(C)]
        pub struct $name { $( $(#[doc = $field_doc])* pub $field: $type, )* }
    )* };
}

rows! {
    Warehouse {
        /// Payments so far.
        ytd: u64,
    }
    Item {
        quantity: u64,
        /// Units ordered so far.
        ytd: u64,
        orders: u64,
    }
    Stock { items: [Item; ITEMS], }
    Customer { balance: i64, payments: u64, deliveries: u64, }
    Order {
        /// 0: none.
        id: u64,
        customer: u64,
        lines: u64,
        carrier: u64,
    }
    Line {
        /// 0: none.
        order: u64,
        item: u32,
        quantity: u32,
        amount: u64,
    }
    District {
        /// Versions of the warehouse and of the stock with which this district had its last transaction.
        seen: [u64; 2],
        ytd: u64,
        next_order: u64,
        /// Units ordered so far.
        units: u64,
        customers: [Customer; CUSTOMERS],
        /// By the last digits of the number.
        orders: [Order; ORDERS],
        /// Numbers of orders to be delivered, 0 for none, in the same places.
        new_orders: [u64; ORDERS],
        lines: [[Line; LINES]; ORDERS],
    }
    Districts { version: u64, rows: [District; 2], }
    Warehouses { version: u64, district: u64, rows: [Warehouse; 2], }
    Stocks { version: u64, district: u64, rows: [Stock; 2], }
}

/// Position of the rows that are not those of this version.
const fn other(version: u64) -> usize {
    (version & 1) as usize ^ 1
}

impl Districts {
    pub const fn current(&self) -> &District {
        &self.rows[(self.version & 1) as usize]
    }

    const fn next(&mut self) -> &mut District {
        &mut self.rows[other(self.version)]
    }

    /// Copies the rows that are true to those that are to be.
    fn copy(&mut self) {
        let from = (self.version & 1) as usize;
        self.rows.copy_within(from..=from, other(self.version));
    }
}

/// A table that has transactions together with a district.
pub trait Partner: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {
    type Row: Copy;
    /// Position of its version in [`District::seen`].
    const WHICH: usize;
    fn of<'t, 'i>(tables: &'t Tables<'i>, warehouse: usize) -> &'t Mutex<'i, Self>;
    /// Its version; the district with which a transaction is under way, from 1; its rows.
    fn parts(&mut self) -> (&mut u64, &mut u64, &mut [Self::Row; 2]);
    fn current(&self) -> &Self::Row;
    fn is_settled(&self) -> bool;
}

macro_rules! partner {
    ($type:ty: $row:ty, $which:literal, $field:ident) => {
        impl Partner for $type {
            type Row = $row;
            const WHICH: usize = $which;

            fn of<'t, 'i>(tables: &'t Tables<'i>, warehouse: usize) -> &'t Mutex<'i, Self> {
                &tables.$field[warehouse]
            }

            fn parts(&mut self) -> (&mut u64, &mut u64, &mut [$row; 2]) {
                (&mut self.version, &mut self.district, &mut self.rows)
            }

            fn current(&self) -> &$row {
                &self.rows[(self.version & 1) as usize]
            }

            fn is_settled(&self) -> bool {
                self.district == 0
            }
        }
    };
}

partner!(Warehouses: Warehouse, 0, warehouses);
partner!(Stocks: Stock, 1, stocks);

/// The mutexes of the tables, with the tables.
pub struct Tables<'i> {
    warehouses: Vec<Mutex<'i, Warehouses>>,
    stocks: Vec<Mutex<'i, Stocks>>,
    districts: Vec<Mutex<'i, Districts>>,
}

/// Type of their mutexes.
pub const TYPE: &str = "tpcc";

impl<'i> Tables<'i> {
    /// Finds them in the instance, or makes them.
    pub fn of(instance: &'i Instance) -> Result<Self, Report> {
        let mut tables = Self { warehouses: Vec::new(), stocks: Vec::new(), districts: Vec::new() };
        for warehouse in 1..=WAREHOUSES {
            let name = format!("tpcc warehouse {warehouse}");
            tables.warehouses.push(instance.mutex(&name, TYPE, FromZeros::new_zeroed).map_err(object_error)?);
            let name = format!("tpcc stock {warehouse}");
            tables.stocks.push(instance.mutex(&name, TYPE, FromZeros::new_zeroed).map_err(object_error)?);
            for district in 1..=DISTRICTS {
                let name = format!("tpcc district {warehouse}.{district}");
                let first = || {
                    let mut table = Districts::new_zeroed();
                    table.rows[0].next_order = 1;
                    table
                };
                tables.districts.push(instance.mutex(&name, TYPE, first).map_err(object_error)?);
            }
        }
        Ok(tables)
    }

    /// A district to be looked at.
    pub fn district<'a>(
        &self,
        (warehouse, district): (usize, usize),
        seat: &'a Seat<'a>,
        mode: Mode,
        at: &CodeLocation,
    ) -> Result<Guard<'a, Districts>, Report>
    where
        'i: 'a,
    {
        get(&self.districts[warehouse * DISTRICTS + district], seat, mode, at)
    }

    /// The table beside the districts of a warehouse, with no transaction under way.
    pub fn partner<'a, P: Partner>(
        &self,
        warehouse: usize,
        seat: &'a Seat<'a>,
        mode: Mode,
        at: &CodeLocation,
    ) -> Result<Guard<'a, P>, Report>
    where
        'i: 'a,
    {
        loop {
            let held = get(P::of(self, warehouse), seat, mode, at)?;
            if held.is_settled() {
                return Ok(held);
            }
            drop(held);
            self.settle(&mut *get(P::of(self, warehouse), seat, Mode::Exclusive, at)?, seat)?;
        }
    }

    /// Completes the transaction that a session had under way when it died, if it was committed, and forgets
    /// it else.
    fn settle<P: Partner>(&self, partner: &mut P, seat: &Seat<'_>) -> Result<(), Report> {
        let (version, under_way, _) = partner.parts();
        let Some(number) = under_way.checked_sub(1) else { return Ok(()) };
        let Some(mutex) = self.districts.get(number as usize) else {
            return Err(miette!(code = "retrial::cache::tpcc", "no district {number} in a table of the instance"));
        };
        let district = get(mutex, seat, Mode::Exclusive, location!("tpcc: settle"))?;
        if district.current().seen[P::WHICH] == *version + 1 {
            *version += 1;
            seat.count(COMPLETED);
        } else {
            seat.count(UNDONE);
        }
        then();
        *under_way = 0;
        Ok(())
    }

    /// Begins a transaction on a district and its partner.
    pub fn begin<'a, P: Partner>(
        &self,
        (warehouse, district): (usize, usize),
        seat: &'a Seat<'a>,
        at: &CodeLocation,
    ) -> Result<Transaction<'a, P>, Report>
    where
        'i: 'a,
    {
        let mut partner: Guard<'a, P> = self.partner(warehouse, seat, Mode::Exclusive, at)?;
        let number = warehouse * DISTRICTS + district;
        let mut district = get(&self.districts[number], seat, Mode::Exclusive, at)?;
        district.copy();
        let (version, under_way, rows) = partner.parts();
        rows[other(*version)] = rows[other(*version) ^ 1];
        *under_way = number as u64 + 1;
        Ok(Transaction { district, partner })
    }

    /// Has rows of a district alone changed, all or none.
    pub fn change(
        &self,
        (warehouse, district): (usize, usize),
        seat: &Seat<'_>,
        at: &CodeLocation,
        change: impl FnOnce(&mut District) -> Result<(), Report>,
    ) -> Result<(), Report> {
        let mut district = get(&self.districts[warehouse * DISTRICTS + district], seat, Mode::Exclusive, at)?;
        district.copy();
        change(district.next())?;
        then();
        district.version += 1;
        Ok(())
    }
}

/// A transaction on a district and its partner: nothing of it is true unless it is committed.
pub struct Transaction<'a, P: Partner> {
    // Given back in this order.
    district: Guard<'a, Districts>,
    partner: Guard<'a, P>,
}

impl<P: Partner> Transaction<'_, P> {
    /// The rows that it is to make true.
    pub fn rows(&mut self) -> (&mut P::Row, &mut District) {
        let (version, _, rows) = self.partner.parts();
        (&mut rows[other(*version)], self.district.next())
    }

    pub fn commit(mut self) {
        self.commit_in_district();
        let (version, under_way, _) = self.partner.parts();
        *version += 1;
        then();
        *under_way = 0;
    }

    /// Its last store is the commit.
    fn commit_in_district(&mut self) {
        let (version, ..) = self.partner.parts();
        self.district.next().seen[P::WHICH] = *version + 1;
        then();
        self.district.version += 1;
        then();
    }

    /// Ends it without effect.
    pub fn roll_back(mut self) {
        *self.partner.parts().1 = 0;
    }
}

/// Gets a table. What its last holder had begun when it died is not true, or is settled with its partner.
fn get<'i: 'a, 'a, T: retrial::Shareable>(
    mutex: &Mutex<'i, T>,
    seat: &'a Seat<'a>,
    mode: Mode,
    at: &CodeLocation,
) -> Result<Guard<'a, T>, Report> {
    match mutex.get(&seat.session, mode, at, Patience::Endless) {
        Ok(guard) => Ok(guard),
        Err(GetError::OwnerDied(mut died)) => {
            // Readers beside each other leave that to the next holder of X.
            if mode == Mode::Exclusive {
                seat.count(OWNER_DIED);
                died.guard.consistent();
            }
            Ok(died.guard)
        }
        Err(error) => {
            let why = retrial::GetFailure::from(error);
            Err(miette!(code = "retrial::cache::tpcc", help = "retrial show mutexes", "a table was not got: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::crew::at_a_seat;
    use super::super::check;
    use super::*;
    use retrial::Capacity;

    /// A payment is left before or after its commit, as by a death: what is counted, and what warehouse and
    /// district have then.
    fn left(is_committed: bool) -> (Vec<u64>, [u64; 2]) {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let tables = Tables::of(&instance).unwrap();
        let at = location!("test");
        let mut have = [0; 2];
        let counts = at_a_seat(&instance, |seat| {
            let mut pay = tables.begin::<Warehouses>((1, 4), seat, at).unwrap();
            pay.rows().0.ytd += 7;
            pay.rows().1.ytd += 7;
            if is_committed {
                pay.commit_in_district();
            }
            drop(pay);
            // Others go on in the district meanwhile.
            let pay = |rows: &mut District| {
                rows.customers[0].payments += 1;
                Ok(())
            };
            tables.change((1, 4), seat, at, pay).unwrap();
            tables.begin::<Stocks>((1, 4), seat, at).unwrap().commit();
            let warehouse = tables.partner::<Warehouses>(1, seat, Mode::Shared, at).unwrap();
            let district = tables.district((1, 4), seat, Mode::Shared, at).unwrap();
            have = [warehouse.current().ytd, district.current().ytd];
            drop((warehouse, district));
            assert_eq!(check::wrong(&tables, seat).unwrap(), [""; 0]);
            // One that is rolled back leaves nothing to be settled.
            let mut none = tables.begin::<Warehouses>((1, 4), seat, at).unwrap();
            none.rows().0.ytd += 100;
            none.roll_back();
            assert_eq!(check::wrong(&tables, seat).unwrap(), [""; 0]);
        });
        (counts, have)
    }

    #[test]
    fn a_transaction_that_is_left_is_completed_or_undone() {
        let (counts, have) = left(true);
        assert_eq!((counts[COMPLETED], counts[UNDONE], have), (1, 0, [7, 7]));
        let (counts, have) = left(false);
        assert_eq!((counts[COMPLETED], counts[UNDONE], have), (0, 1, [0, 0]));
    }
}
