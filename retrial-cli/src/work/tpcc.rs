//! The load of 003: TPC-C's five transactions, each a procedure in the cache whose statements are cursors in
//! it, on small tables in the instance's memory.

mod check;
mod tables;

use self::tables::{
    CUSTOMERS, DISTRICTS, District, ITEMS, LINES, Line, ORDERS, Order, Partner as _, Stocks, TYPE, Tables, WAREHOUSES,
    Warehouses,
};
use super::cached::with;
use super::{Done, Load, Seat};
use crate::instances::cache_error;
use miette::Report;
use retrial::{Instance, Mode, location};
use retrial_bench::load::Random;
use retrial_cache::{Cache, Client, Key, Namespace};

/// A procedure: its name, its share of the transactions in percent, its statements, and what it does.
struct Procedure {
    name: &'static str,
    share: u64,
    statements: &'static [&'static str],
    run: fn(&mut Desk<'_>) -> Result<(), Report>,
}

const PROCEDURES: [Procedure; 5] = [
    Procedure {
        name: "NEWORD",
        share: 45,
        statements: &[
            "update district set d_next_o_id = d_next_o_id + 1",
            "insert into orders",
            "update stock set s_quantity = :1",
            "insert into order_line",
        ],
        run: new_order,
    },
    Procedure {
        name: "PAYMENT",
        share: 43,
        statements: &[
            "update warehouse set w_ytd = w_ytd + :1",
            "update district set d_ytd = d_ytd + :1",
            "update customer set c_balance = c_balance - :1",
        ],
        run: payment,
    },
    Procedure {
        name: "DELIVERY",
        share: 4,
        statements: &["delete from new_order", "update orders set o_carrier_id = :1", "update customer"],
        run: delivery,
    },
    Procedure {
        name: "OSTAT",
        share: 4,
        statements: &["select * from orders", "select * from order_line"],
        run: status,
    },
    Procedure { name: "SLEV", share: 4, statements: &["select count(*) from stock"], run: stock_level },
];

/// What is counted beside the transactions, by these positions.
pub const COUNTS: [&str; 9] =
    ["neword", "payment", "delivery", "ostat", "slev", "rolled_back", "owner_died", "undone", "completed"];
const ROLLED_BACK: usize = 5;
const OWNER_DIED: usize = 6;
const UNDONE: usize = 7;
const COMPLETED: usize = 8;

/// SLEV counts the items of which fewer are in stock.
const FEW: u64 = 15;

const fn procedure(name: &'static str) -> Key<'static> {
    Key::new(Namespace::Procedure, "TPCC", name)
}

const fn cursor(statement: &'static str) -> Key<'static> {
    Key::new(Namespace::Child, "", statement)
}

/// The load.
pub struct Tpcc<'i> {
    cache: Cache<'i>,
    tables: Tables<'i>,
}

impl<'i> Tpcc<'i> {
    /// In this cache, on the tables of the instance.
    pub fn new(instance: &'i Instance, cache: Cache<'i>) -> Result<Self, Report> {
        Ok(Self { cache, tables: Tables::of(instance)? })
    }
}

/// Types of the mutexes that it uses.
pub const TYPES: [&str; 5] = ["Library Cache", "Cursor Parent", "Cursor Pin", "hash table", TYPE];

impl Load for Tpcc<'_> {
    fn objects(&self) -> Vec<Key<'static>> {
        let of = |it: &Procedure| {
            [procedure(it.name)].into_iter().chain(it.statements.iter().map(|text| cursor(text))).collect::<Vec<_>>()
        };
        PROCEDURES.iter().flat_map(of).collect()
    }

    fn work(&self, seat: &Seat<'_>) -> Result<(), Report> {
        let client = self.cache.join(&seat.session).map_err(cache_error)?;
        let random = Random::new(retrial::sys::now_ns() + u64::from(seat.index));
        let mut desk = Desk { tables: &self.tables, client: &client, seat, random };
        while seat.goes_on() {
            let mut drawn = desk.random.below(100);
            for (position, it) in PROCEDURES.iter().enumerate() {
                if drawn < it.share {
                    let key = procedure(it.name);
                    with(&client, &key, || client.call(&key, |_| (it.run)(&mut desk)))??;
                    seat.count(position);
                    break;
                }
                drawn -= it.share;
            }
            seat.executed();
            seat.think();
        }
        Ok(())
    }

    fn check(&self, seat: &Seat<'_>, _done: Done) -> Result<Vec<String>, Report> {
        check::wrong(&self.tables, seat)
    }
}

/// What a session does its transactions with.
struct Desk<'a> {
    tables: &'a Tables<'a>,
    client: &'a Client<'a>,
    seat: &'a Seat<'a>,
    random: Random,
}

impl Desk<'_> {
    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    /// Some district.
    fn district(&mut self) -> (usize, usize) {
        (self.below(WAREHOUSES), self.below(DISTRICTS))
    }

    /// Executes the cursor of a statement, with its effect.
    fn sql(&self, statement: &'static str, mut effect: impl FnMut()) -> Result<(), Report> {
        let key = cursor(statement);
        with(self.client, &key, || {
            self.client.execute(&key, |_| {
                self.seat.run();
                effect();
            })
        })
    }
}

fn new_order(desk: &mut Desk<'_>) -> Result<(), Report> {
    let (place, customer) = (desk.district(), desk.below(CUSTOMERS) as u64);
    let lines: Vec<(u32, u32)> =
        (0..5 + desk.below(LINES - 4)).map(|_| (desk.below(ITEMS) as u32, desk.below(10) as u32 + 1)).collect();
    // One of a hundred has an item that there is none of.
    let is_wrong = desk.below(100) == 0;
    let mut work = desk.tables.begin::<Stocks>(place, desk.seat, location!("tpcc: NEWORD"))?;
    let mut id = 0;
    let [number, insert, stock, insert_lines] = [0, 1, 2, 3].map(|at| PROCEDURES[0].statements[at]);
    desk.sql(number, || {
        let (_, district) = work.rows();
        id = district.next_order;
        district.next_order += 1;
    })?;
    let at = (id % ORDERS as u64) as usize;
    desk.sql(insert, || {
        let (_, district) = work.rows();
        // An order that is still to be delivered makes room by being delivered.
        district.deliver(at, 1);
        district.orders[at] = Order { id, customer, lines: lines.len() as u64, carrier: 0 };
        district.new_orders[at] = id;
    })?;
    desk.sql(stock, || {
        let (stock, _) = work.rows();
        for (item, quantity) in &lines {
            let item = &mut stock.items[*item as usize];
            let quantity = u64::from(*quantity);
            item.quantity = if item.quantity >= quantity + 10 { item.quantity } else { item.quantity + 91 } - quantity;
            item.ytd += quantity;
            item.orders += 1;
        }
    })?;
    if is_wrong {
        work.roll_back();
        desk.seat.count(ROLLED_BACK);
        return Ok(());
    }
    desk.sql(insert_lines, || {
        let (_, district) = work.rows();
        district.lines[at] = [Line { order: 0, item: 0, quantity: 0, amount: 0 }; LINES];
        for (line, &(item, quantity)) in district.lines[at].iter_mut().zip(&lines) {
            *line = Line { order: id, item, quantity, amount: u64::from(quantity * (item + 1)) };
            district.units += u64::from(quantity);
        }
    })?;
    work.commit();
    Ok(())
}

fn payment(desk: &mut Desk<'_>) -> Result<(), Report> {
    let (place, customer, amount) = (desk.district(), desk.below(CUSTOMERS), desk.below(500_000) as u64 + 100);
    let mut work = desk.tables.begin::<Warehouses>(place, desk.seat, location!("tpcc: PAYMENT"))?;
    let [warehouse, district, of_customer] = [0, 1, 2].map(|at| PROCEDURES[1].statements[at]);
    desk.sql(warehouse, || work.rows().0.ytd += amount)?;
    desk.sql(district, || work.rows().1.ytd += amount)?;
    desk.sql(of_customer, || {
        let customer = &mut work.rows().1.customers[customer];
        customer.balance -= amount.cast_signed();
        customer.payments += 1;
    })?;
    work.commit();
    Ok(())
}

/// The oldest order of each district of a warehouse, each in a transaction of its own.
fn delivery(desk: &mut Desk<'_>) -> Result<(), Report> {
    let (warehouse, carrier) = (desk.below(WAREHOUSES), desk.below(10) as u64 + 1);
    let [delete, carry, customer] = [0, 1, 2].map(|at| PROCEDURES[2].statements[at]);
    for district in 0..DISTRICTS {
        desk.tables.change((warehouse, district), desk.seat, location!("tpcc: DELIVERY"), |rows| {
            let oldest = |rows: &District| {
                (0..ORDERS).filter(|at| rows.new_orders[*at] > 0).min_by_key(|at| rows.new_orders[*at])
            };
            let mut at = None;
            desk.sql(delete, || at = oldest(rows))?;
            let Some(at) = at else { return Ok(()) };
            desk.sql(carry, || rows.orders[at].carrier = carrier)?;
            desk.sql(customer, || rows.deliver(at, carrier))
        })?;
    }
    Ok(())
}

impl District {
    /// Delivers the order in this place, if it is to be delivered.
    fn deliver(&mut self, at: usize, carrier: u64) {
        if self.new_orders[at] == 0 {
            return;
        }
        self.new_orders[at] = 0;
        self.orders[at].carrier = carrier;
        let customer = &mut self.customers[self.orders[at].customer as usize % CUSTOMERS];
        customer.balance += self.lines[at].iter().map(|line| line.amount.cast_signed()).sum::<i64>();
        customer.deliveries += 1;
    }
}

fn status(desk: &mut Desk<'_>) -> Result<(), Report> {
    let (place, customer) = (desk.district(), desk.below(CUSTOMERS) as u64);
    let [orders, lines] = [0, 1].map(|at| PROCEDURES[3].statements[at]);
    let table = desk.tables.district(place, desk.seat, Mode::Shared, location!("tpcc: OSTAT"))?;
    let rows = table.current();
    let mut last = None;
    let own = || (0..ORDERS).filter(|at| rows.orders[*at].id > 0 && rows.orders[*at].customer == customer);
    desk.sql(orders, || last = own().max_by_key(|at| rows.orders[*at].id))?;
    desk.sql(lines, || {
        let amounts = last.map(|at| rows.lines[at].iter().map(|line| line.amount).sum::<u64>());
        std::hint::black_box(amounts);
    })
}

fn stock_level(desk: &mut Desk<'_>) -> Result<(), Report> {
    let place = desk.district();
    let stock = desk.tables.partner::<Stocks>(place.0, desk.seat, Mode::Shared, location!("tpcc: SLEV"))?;
    let table = desk.tables.district(place, desk.seat, Mode::Shared, location!("tpcc: SLEV"))?;
    desk.sql(PROCEDURES[4].statements[0], || {
        let (rows, items) = (table.current(), &stock.current().items);
        let recent = rows.lines.iter().flatten().filter(|line| line.order + 20 >= rows.next_order && line.order > 0);
        let few = recent.filter(|line| items[line.item as usize % ITEMS].quantity < FEW);
        std::hint::black_box(few.map(|line| line.item).collect::<std::collections::BTreeSet<_>>().len());
    })
}
