/* How figures, durations, amounts and findings are written. */

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s` : `${Math.round(ms / 60_000)} min`;
}

/** USD as the API writes it, a decimal string, to two significant digits below a cent. */
export function cost(usd) {
  const amount = Number(usd);
  if (amount === 0) return "$0";
  if (amount < 0.000001) return "< $0.000001";
  return amount >= 0.01 ? `$${amount.toFixed(2)}` : `$${amount.toFixed(Math.min(6, 1 - Math.floor(Math.log10(amount))))}`;
}

export const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

export const shortId = (id) => `${id.slice(0, 8)}…${id.slice(-4)}`;

const ENTITIES = {
  PERSON: ["name", "names"],
  EMAIL_ADDRESS: ["email address", "email addresses"],
  PHONE_NUMBER: ["phone number", "phone numbers"],
  CREDIT_CARD: ["card number", "card numbers"],
  IBAN_CODE: ["IBAN", "IBANs"],
  US_SSN: ["social security number", "social security numbers"],
  US_BANK_NUMBER: ["bank account number", "bank account numbers"],
  BANK_ACCOUNT_NUMBER: ["bank account number", "bank account numbers"],
  UK_BANK_ACCOUNT: ["bank account number", "bank account numbers"],
  ABA_ROUTING_NUMBER: ["routing number", "routing numbers"],
  STREET_ADDRESS: ["postal address", "postal addresses"],
  DATE_OF_BIRTH: ["date of birth", "dates of birth"],
  PASSPORT: ["passport number", "passport numbers"],
  DRIVER_LICENSE: ["driving licence", "driving licences"],
  SECRET: ["secret", "secrets"],
  CUSTOMER_NUMBER: ["customer number", "customer numbers"],
  MAC_ADDRESS: ["device address", "device addresses"],
  IP_ADDRESS: ["IP address", "IP addresses"],
  LOCATION: ["place", "places"],
  DATE_TIME: ["date", "dates"],
  URL: ["web address", "web addresses"],
  CRYPTO: ["wallet address", "wallet addresses"],
};

/** "1 email address, 2 names" from `{EMAIL_ADDRESS: 1, PERSON: 2}`; empty when there is nothing. */
export function findings(counts) {
  return Object.entries(counts)
    .map(([type, number]) => {
      const plain = type.toLowerCase().replaceAll("_", " ");
      const [one, many] = ENTITIES[type] ?? [plain, `× ${plain}`];
      return count(number, one, many);
    })
    .join(", ");
}

const DAY_MS = 86_400_000;

/** Under which heading of the list of conversations a moment falls. */
export function period(moment, now = new Date()) {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const at = new Date(moment).getTime();
  if (at >= midnight) return "Today";
  if (at >= midnight - DAY_MS) return "Yesterday";
  return at >= midnight - 7 * DAY_MS ? "Last seven days" : "Earlier";
}
