"""What happens behind the counter: three departments that all read the topic `orders`, each at its own pace."""
